"""Restore drills: a checkpoint is restored without touching its job."""
