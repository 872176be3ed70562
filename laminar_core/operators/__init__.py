"""What happens to rows: batch in, batch out."""
