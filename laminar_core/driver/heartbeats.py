"""The driver's heartbeat in the store, which also detects that the store is lost.

A heartbeat is written only into the store in which the generation was claimed. Any other in its
place, such as the empty directory below a mount point, is left alone.
"""

from concurrent.futures import Executor

from laminar_core.driver.events import StoreBack, StoreLost
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.errors import ErrorCode, FencedError, StorageUnavailable
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore


class Heartbeats:
    """The heartbeats of one generation."""

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        audit: AuditLog,
        host: CoordinatorHost,
        background: Executor,
    ) -> None:
        self._store = store
        self._generation = generation
        self._audit = audit
        self._host = host
        self._background = background
        self._is_lost = False
        """Used by the background thread only."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Show that the driver lives, and notice if the job was taken over or the store is lost."""
        self._background.submit(self._beat, heartbeat)

    def _beat(self, heartbeat: Heartbeat) -> None:
        try:
            newest = self._audit.newest()
            self._store.claims.check_owner(self._generation)
            self._audit.keep(newest)
            named = heartbeat.model_copy(update={"audited": newest})
            self._store.generations.beat(self._generation, named)
        except FencedError as error:
            self._host.fenced(error)
        except StorageUnavailable as error:
            self._missed(error)
        else:
            self._made()

    def _missed(self, error: StorageUnavailable) -> None:
        """A store that only fails is not lost; checkpoints report what is wrong with it."""
        if error.code not in (ErrorCode.STORE_GONE, ErrorCode.STORE_REPLACED) or self._is_lost:
            return
        self._is_lost = True
        self._host.notify(
            StoreLost(
                time_ms=self._host.now_ms(),
                generation=self._generation,
                code="store-gone" if error.code is ErrorCode.STORE_GONE else "store-replaced",
                reason=str(error),
            )
        )

    def _made(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._host.notify(StoreBack(time_ms=self._host.now_ms(), generation=self._generation))
