"""Digests as records have them."""

import hashlib


def sha256_hex(data: bytes | memoryview) -> str:
    """Return the digest as in manifests: 64 lower-case hex digits.

    >>> sha256_hex(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()
