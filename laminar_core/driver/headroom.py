"""Look, once a minute, how long the oldest retained checkpoint can still be restored.

An input that deletes old rows makes a checkpoint useless, and reports nothing, whatever the store
keeps. So its sources compare the positions of the oldest checkpoint with what is there now. A
source that keeps its rows costs nothing: it is not asked, and nothing is read.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from laminar_core.connectors.base import Forgetting, Headroom
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.source_positions import positions_of

LOOK_INTERVAL_MS = 60_000
"""Time between two looks. A look lists the checkpoints and asks each input a few times."""


@dataclass(frozen=True, slots=True)
class KnownHeadroom:
    """The answer of a source, and the checkpoint with the positions that it was about."""

    checkpoint_id: CheckpointId
    headroom: Headroom


class HeadroomWatch:
    """The looks of one generation. Called from the coordinator's thread only."""

    def __init__(
        self,
        sources: Mapping[str, Forgetting],
        store: CheckpointStore,
        host: CoordinatorHost,
        executor: Executor,
    ) -> None:
        self._sources = dict(sources)
        self._store = store
        self._host = host
        self._executor = executor
        self._due_ms = 0.0
        self._is_busy = False
        self._abandoned: set[CheckpointId] = set()
        """Checkpoints that no start continues from; used by the looks only."""
        self.known: Mapping[str, KnownHeadroom] = {}
        """By source. A source that did not answer at the last look is not in it."""

    def tick(self) -> None:
        """Begin a look if it is due."""
        if self._sources and not self._is_busy and self._host.monotonic_ms() >= self._due_ms:
            self._is_busy = True
            self._executor.submit(self._look)

    def next_wakeup_ms(self) -> float | None:
        """Return when ``tick`` is due; None if it is not."""
        return None if self._is_busy or not self._sources else self._due_ms

    # --- in another thread ----------------------------------------------------------------------

    def _look(self) -> None:
        found: dict[str, KnownHeadroom] = {}
        try:
            oldest = self._oldest()
            if oldest is not None:
                for name, source in self._sources.items():
                    known = _unless_it_fails(lambda s=source, n=name: self._ask(n, s, oldest))
                    if known is not None:
                        found[name] = KnownHeadroom(oldest.checkpoint_id, known)
        except Exception:  # noqa: BLE001, S110 - nothing is known; checkpoints report the store
            pass
        self._host.post(lambda: self._on_found(found))

    def _ask(self, name: str, source: Forgetting, manifest: CheckpointManifest) -> Headroom | None:
        splits = positions_of(name, self._store, manifest)
        return None if splits is None else source.headroom(splits)

    def _oldest(self) -> CheckpointManifest | None:
        """Return the oldest checkpoint that a start could continue from."""
        bases = self._store.generations.bases()
        for checkpoint_id in self._store.manifests.ids():
            if checkpoint_id in self._abandoned:
                continue
            try:
                manifest = self._store.manifests.find(checkpoint_id)
            except CorruptCheckpointError:
                continue
            if manifest is not None:
                if on_timeline(checkpoint_id, Generation(manifest.generation), bases):
                    return manifest
                self._abandoned.add(checkpoint_id)
        return None

    # --- in the coordinator's thread ------------------------------------------------------------

    def _on_found(self, found: Mapping[str, KnownHeadroom]) -> None:
        self._is_busy = False
        self._due_ms = self._host.monotonic_ms() + LOOK_INTERVAL_MS
        self.known = found


def _unless_it_fails(ask: Callable[[], Headroom | None]) -> Headroom | None:
    """One source that does not answer must not hide the others."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - foreign code; reading goes on, and says what is wrong
        return None
