"""Commands for a running job: asked for from anywhere, answered by its driver."""
