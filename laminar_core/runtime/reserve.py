"""A driver holds some space back for the day on which the disk is full; see ``storage.reserve``."""

from laminar_core.runtime.events import GenerationStarted, JobEvent, JobListener
from laminar_core.state.retention_paths import RetentionPaths
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.reserve import keep_reserve


class ReserveKeeper:
    """A listener around another one: when a generation starts, the reserve is completed."""

    def __init__(self, store: CheckpointStore, listener: JobListener) -> None:
        self._store = store
        self._listener = listener

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on."""
        self._listener(event)
        if isinstance(event, GenerationStarted):
            keep_reserve(self._store.objects, RetentionPaths(self._store.paths))
