"""Process functions: a user's code over keyed rows, with state per key and timers."""
