"""The kinds of requests that a Kafka client sends, seen from outside.

A request is its length in four bytes, and then its kind (``api_key``) in two: Kafka's protocol.
"""

from enum import IntEnum


class KafkaRequest(IntEnum):
    """Kinds of requests that faults are ordered for."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TRANSACTION = 26
    COMMIT_OFFSETS = 28
    """Offsets as part of a transaction (TxnOffsetCommit)."""
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


_LENGTH_BYTES = 4
_HEAD_BYTES = 6


class KafkaRequests:
    """Watches one connection of a client; call it with each piece, in order."""

    def __init__(self) -> None:
        self._rest = b""
        """The beginning of a request whose kind has not arrived yet."""
        self._skip_bytes = 0
        """Bytes of the current request that are still to come."""

    def __call__(self, piece: bytes) -> list[int]:
        """Return the kinds of the requests whose head ends in this piece."""
        skipped = min(self._skip_bytes, len(piece))
        self._skip_bytes -= skipped
        data = self._rest + piece[skipped:]
        self._rest, found, at = b"", list[int](), 0
        while at < len(data):
            if len(data) - at < _HEAD_BYTES:
                self._rest = data[at:]
                break
            length = int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            found.append(int.from_bytes(data[at + _LENGTH_BYTES : at + _HEAD_BYTES], "big"))
            self._skip_bytes = max(at + _LENGTH_BYTES + length - len(data), 0)
            at += _LENGTH_BYTES + length
        return found
