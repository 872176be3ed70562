"""Foreign bytes into rows, and rows into bytes."""
