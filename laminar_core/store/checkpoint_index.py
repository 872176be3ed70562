"""The index of checkpoints in the store: read by lists and plans, and made from manifests.

It saves reading: the lists of ten thousand checkpoints read 40 objects. It decides nothing. An
entry counts only while a listing shows the manifest, with the length that the index has; manifests
never change. Every other manifest is read. A deletion, a restore and a verification read manifests
and never the index. So a missing, damaged, old or forged block costs time, or makes a list wrong,
and no more. Two writers of a block write what the manifests say, and either result is right.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.checkpoint_index import BLOCK, IndexBlock, KnownCheckpoint, block_of
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.paths import JobPaths, number_in
from laminar_core.records.retention import parse_sealed
from laminar_core.store.records import bytes_in

WORTH_MIN = 32
"""Manifests of a block from which on one larger object is read sooner than each of them."""

_READERS = 8
_NOT_ALLOWED = {ErrorCode.STORE_READ_ONLY, ErrorCode.STORE_ACCESS_DENIED}
"""Codes of a folder or an object that this user may not read."""


class CheckpointIndex:
    """The index of one job. Safe to use from several threads and processes."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self._objects = objects
        self._paths = paths

    def read(self, sizes: Mapping[str, int]) -> dict[CheckpointId, KnownCheckpoint]:
        """Return the checkpoints that the index knows, by id.

        ``sizes``: the listing of the folder ``checkpoints``. Checkpoints that are not returned have
        to be read. An index that may not be read is as good as none.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        try:
            return self._read(sizes)
        except CorruptCheckpointError:
            return {}
        except StorageUnavailable as error:
            if error.code in _NOT_ALLOWED:
                return {}
            raise

    def _read(self, sizes: Mapping[str, int]) -> dict[CheckpointId, KnownCheckpoint]:
        manifests = self.manifests_in(sizes)
        stored = self.stored() & worth_having(manifests)
        store_sha256 = self.store_sha256() if stored else None
        if store_sha256 is None:
            return {}
        found: dict[CheckpointId, KnownCheckpoint] = {}
        numbers = sorted(stored)
        with ThreadPoolExecutor(_READERS) as pool:
            # Threads only wait for the store: they would hinder each other at parsing.
            for number, data in zip(numbers, pool.map(self._bytes_of, numbers), strict=True):
                block = self._block_in(data, number, store_sha256)
                if block is None:
                    continue
                for each in block.checkpoints:
                    if manifests.get(each.checkpoint_id) == each.manifest_bytes:
                        found[each.checkpoint_id] = block.known(each)
        return found

    def manifests_in(self, sizes: Mapping[str, int]) -> dict[CheckpointId, int]:
        """Return the length of each manifest, or tombstone, in a listing of ``checkpoints``."""
        folder, name = len(self._paths.checkpoints), "/manifest.json"
        found: dict[CheckpointId, int] = {}
        for key, size_bytes in sizes.items():
            if key.endswith(name):
                number = number_in(key[folder : -len(name) + 1])
                if number is not None:
                    found[CheckpointId(number)] = size_bytes
        return found

    def stored(self) -> frozenset[int]:
        """Return the numbers of the blocks in the store."""
        names = self._objects.children(self._paths.index)
        return frozenset(number for name in names if (number := number_in(name)) is not None)

    def block(self, number: int, store_sha256: str) -> IndexBlock | None:
        """Read a block; None: it is missing or damaged, or belongs to another job or store."""
        return self._block_in(self._bytes_of(number), number, store_sha256)

    def _bytes_of(self, number: int) -> bytes | None:
        return bytes_in(self._objects, self._paths.index_block(number))

    def _block_in(self, data: bytes | None, number: int, store_sha256: str) -> IndexBlock | None:
        if data is None:
            return None
        try:
            block = parse_sealed(IndexBlock, data)
        except CorruptCheckpointError:
            return None
        expected = (self._paths.job, number, store_sha256)
        return block if (block.job, block.number, block.store_sha256) == expected else None

    def write(self, number: int, store_sha256: str) -> int:
        """Make a block from the manifests; return how many it has.

        A block that is not worth having is deleted. Manifests that cannot be read are left out.

        Raises:
            ConfigurationError: the block would be larger than any record may be.
            StorageUnavailable: the store did not answer.
        """
        ids = range((number - 1) * BLOCK + 1, number * BLOCK + 1)
        found = [known for known in map(self._read_manifest, ids) if known is not None]
        key = self._paths.index_block(number)
        if len(found) >= WORTH_MIN:
            block = IndexBlock.of(self._paths.job, number, store_sha256, found)
            self._objects.put(key, block.to_bytes())
        elif self._objects.size(key) is not None:
            self._objects.delete(key)
        return len(found)

    def store_sha256(self) -> str | None:
        """Return the digest of the job's first claim, which tells stores apart; None: no claim."""
        names = self._objects.children(self._paths.generations)
        first = min((n for name in names if (n := number_in(name)) is not None), default=None)
        if first is None:
            return None
        return sha256_hex(bytes_in(self._objects, self._paths.claim(Generation(first))) or b"")

    def _read_manifest(self, number: int) -> tuple[KnownCheckpoint, int] | None:
        """Return what the index has of a manifest, with its length; None: it has to be read."""
        checkpoint_id = CheckpointId(number)
        data = bytes_in(self._objects, self._paths.manifest(checkpoint_id))
        if data is None:
            return None
        try:
            manifest = parse_manifest(data)
        except CorruptCheckpointError:  # Also a tombstone.
            return None
        if (manifest.job, manifest.checkpoint_id) != (self._paths.job, checkpoint_id):
            return None
        return KnownCheckpoint.of(manifest), len(data)


def worth_having(manifests: Iterable[CheckpointId]) -> frozenset[int]:
    """Return the blocks with so many manifests that an index of them saves reading."""
    counts = Counter(map(block_of, manifests))
    return frozenset(number for number, count in counts.items() if count >= WORTH_MIN)
