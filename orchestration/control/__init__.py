"""Acts on a running job, with a form each."""
