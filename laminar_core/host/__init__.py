"""Resources of the local machine: a clock, and private folders."""
