"""The control plane: starts generations of a job, coordinates their checkpoints, ends them."""
