"""Keep the store's reserve of disk space from the running driver (``objectstore.reserve``)."""

from laminar_core.driver.events import GenerationStarted, JobEvent, JobListener
from laminar_core.objectstore.reserve import keep_reserve
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.store.checkpoint_store import CheckpointStore


class ReserveKeeper:
    """A listener around another one: when a generation starts, the reserve is completed.

    Eight writes that are synced take longer than all else that a start has to write, so call it
    where the start does not wait for it: in the thread of the job's listener.
    """

    def __init__(self, store: CheckpointStore, listener: JobListener) -> None:
        self._store = store
        self._listener = listener

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on, and fill the reserve when a generation has started."""
        try:
            self._listener(event)
        finally:  # Also for a listener that fails.
            if isinstance(event, GenerationStarted):
                keep_reserve(self._store.objects, RetentionPaths(self._store.paths))
