"""Recovery: choose the checkpoint that a generation continues from, and check that it fits."""
