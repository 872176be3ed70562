"""``make demo-ops``: payments under Dagster; slow, killed, damaged, and mended by its sensors."""
