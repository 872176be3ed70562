"""The checkpoint store as a Dagster resource."""

from laminar_core.resources.settled import SettledResource
from laminar_core.store.checkpoint_store import CheckpointStore


class CheckpointStoreResource(SettledResource["CheckpointStoreResource"]):
    """The store that holds the checkpoints of all streams of this deployment."""

    uri: str
    """A directory that driver, workers and Dagster share, or ``s3://bucket/prefix``."""

    def open(self, job: str) -> CheckpointStore:
        """Open one job's part of the store; nothing is read or written yet.

        Raises:
            ConfigurationError: the URI or the name is not usable.
        """
        return CheckpointStore.open(self.uri, job)
