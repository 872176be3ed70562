"""What crosses between processes: sockets, frames, messages."""
