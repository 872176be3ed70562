"""What a generation continues from, and whether it may."""
