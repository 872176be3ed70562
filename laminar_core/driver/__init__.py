"""The control plane: start generations of a job, coordinate their checkpoints, end them."""
