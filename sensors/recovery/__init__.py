"""Recovery of dead or stuck jobs by one run each."""
