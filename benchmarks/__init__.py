"""Benchmarks: ratios within one run mean something, absolute figures depend on the machine."""
