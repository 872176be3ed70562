"""The demonstration: payments in windows, killed three times, and exactly right in the end."""
