"""Faults of a broker and of the network before it, at every step; the output has to stay exact."""
