"""What a process has on its machine: a clock, and folders of its own."""
