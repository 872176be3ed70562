"""Keep the store's reserve of disk space from the running driver (``objectstore.reserve``)."""

from laminar_core.driver.events import GenerationStarted, JobEvent, JobListener
from laminar_core.objectstore.reserve import keep_reserve
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.store.checkpoint_store import CheckpointStore


class ReserveKeeper:
    """A listener around another one: when a generation starts, the reserve is completed."""

    def __init__(self, store: CheckpointStore, listener: JobListener) -> None:
        self._store = store
        self._listener = listener

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on, and fill the reserve when a generation has started."""
        self._listener(event)
        if isinstance(event, GenerationStarted):
            keep_reserve(self._store.objects, RetentionPaths(self._store.paths))
