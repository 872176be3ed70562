"""Restore drills: prove that a checkpoint can be restored, without touching its job."""
