"""Encode values as bytes and decode them: Arrow files, in-flight data, hashes, key groups."""
