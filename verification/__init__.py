"""What proves the library, and is no part of it: worlds explored, stores damaged and forged."""
