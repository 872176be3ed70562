"""An open file of a place, in the form that Arrow reads."""

from laminar_core.connectors.files.places import OpenFile


class ArrowFile:
    """A file for ``pyarrow.PythonFile``; every read returns all bytes that were asked for."""

    closed = False

    def __init__(self, file: OpenFile, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._position = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes: fewer than ``size`` only at the end."""
        self._file.seek(self._position)
        parts: list[bytes] = []
        while size > 0 and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
            self._position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def seek(self, position: int, whence: int = 0) -> int:
        """Go to a position; return it."""
        self._position = position + (0, self._position, self._size_bytes)[whence]
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def close(self) -> None:
        """Leave it open."""
