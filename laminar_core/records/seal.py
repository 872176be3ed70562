"""Sealed JSON: records that end in their own digest, so that bit flips are detected.

The files of a checkpoint have their digests in its manifest; the manifest has its own in its last
line. This detects decay, not tampering: a writer of the object can also write the digest.
"""

import hashlib
import re

from laminar_core.errors import CorruptCheckpointError, ErrorCode

_END = b"\n}\n"
_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}\n\Z')


def seal(data: bytes) -> bytes:
    """Add the digest of everything before it, as the last field of an indented JSON object."""
    assert data.endswith(_END), "an indented object ends like this"
    body = data.removesuffix(_END)
    return body + f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"'.encode() + _END


def unseal(data: bytes) -> bytes:
    """Remove and verify the digest; data without one is returned unchanged.

    A damaged seal is not recognised and stays in the data, as a field that no record has.

    Raises:
        CorruptCheckpointError: the digest does not fit. Fall back to an older
            checkpoint.
    """
    found = _SEAL.search(data)
    if found is None:
        return data
    body = data[: found.start()]
    if hashlib.sha256(body).hexdigest() != found[1].decode():
        raise CorruptCheckpointError(
            ErrorCode.DIGEST_DIFFERS, "the record is not what was written: its digest differs"
        )
    return body + _END
