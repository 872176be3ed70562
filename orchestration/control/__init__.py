"""Commands to a running job, with a form each."""
