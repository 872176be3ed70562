"""Starting, recovering and moving drivers."""
