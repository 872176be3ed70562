"""What is written beside state, as types: manifests, audit records, commands, object names."""
