"""Values as bytes and back: Arrow files, in-flight data, hashes, key groups."""
