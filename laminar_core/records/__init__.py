"""Stored records as types: manifests, audit records, commands, and the names of objects."""
