"""For your own tests, too: a store that fails on order."""
