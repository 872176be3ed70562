"""Write the index of checkpoints beside the running job, one block after the other.

A block is written once its last number is used up. Blocks that a store lacks, because an earlier
version wrote its checkpoints or the index was deleted, are written one with each checkpoint
that completes. Nothing waits for it, and nothing depends on it: a failure is tried again with the
next checkpoint, and readers read the manifests until then.
"""

from concurrent.futures import Executor
from contextlib import suppress

from laminar_core.errors import ConfigurationError, LaminarError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.checkpoint_index import BLOCK, block_of
from laminar_core.store.checkpoint_index import CheckpointIndex, worth_having
from laminar_core.store.checkpoint_store import CheckpointStore


class IndexWriter:
    """Writes the blocks of one job during one generation. The coordinator's thread calls it."""

    def __init__(self, store: CheckpointStore, generation: Generation, executor: Executor) -> None:
        self._store = store
        self._index = CheckpointIndex(store.objects, store.paths)
        self._generation = generation
        self._executor = executor
        self._last: int | None = None
        """The newest block that was planned. Used by the executor's only thread."""
        self._planned: set[int] = set()

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """Write one block that is missing, if there is one and the job is so long."""
        if checkpoint_id > BLOCK:
            self._executor.submit(self._attempt, block_of(checkpoint_id) - 1)

    def _attempt(self, last: int) -> None:
        if last == self._last and not self._planned:
            return
        with suppress(LaminarError):
            # Before anything is written: in the place of the store there may be another one.
            self._store.claims.check_claim(self._generation)
            if self._last is None:
                self._look(last)
            else:
                self._planned.update(range(self._last + 1, last + 1))
            self._last = last
            if self._planned:
                self._write(max(self._planned))

    def _look(self, last: int) -> None:
        """List the store, once in a generation, for the blocks that it may lack."""
        sizes = self._store.objects.sizes(self._store.paths.checkpoints)
        worth = worth_having(self._index.manifests_in(sizes))
        for number in self._index.stored() - worth:
            self._store.objects.delete(self._store.paths.index_block(number))
        self._planned.update(number for number in worth if number <= last)

    def _write(self, number: int) -> None:
        store_sha256 = self._index.store_sha256()
        try:
            if store_sha256 is not None and self._index.block(number, store_sha256) is None:
                self._index.write(number, store_sha256)
        except ConfigurationError:
            pass  # Larger than a record may be: its manifests are read.
        self._planned.discard(number)
