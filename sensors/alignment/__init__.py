"""Switch a running job to unaligned checkpoints under pressure, and back."""
