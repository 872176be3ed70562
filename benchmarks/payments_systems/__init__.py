"""The systems that `laminar bench payments-beside` and its likes compare."""
