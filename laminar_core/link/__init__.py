"""Communication between processes: sockets, frames, and messages."""
