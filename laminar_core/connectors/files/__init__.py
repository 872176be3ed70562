"""Files of lines as a source: once, or as long as new files come."""
