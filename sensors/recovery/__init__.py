"""Which jobs are dead or stuck, and the one run that answers it."""
