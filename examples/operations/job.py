"""The demo's job in the store, and the damage that the demo does to it."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.commands import ControlCommand, SetMode
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.generation_summary import GenerationSummary
from laminar_core.store.owner import is_running, is_visible


@dataclass(frozen=True, slots=True)
class JobWatch:
    """Looks at one job; ``root`` is the folder of its local store."""

    store: CheckpointStore
    root: Path

    @classmethod
    def of(cls, root: Path, job: str) -> "JobWatch":
        """Watch ``job`` in the local store below ``root``."""
        return cls(CheckpointStore.open(str(root), job), root)

    def generation(self) -> GenerationSummary | None:
        """Return the newest generation; None if the job never ran."""
        return next(reversed(self.store.generations.summaries()), None)

    def driver_pid(self) -> int | None:
        """Return the pid of the newest generation's driver, if it lives."""
        newest = self.generation()
        owner = newest.claim.owner if newest and newest.claim else None
        alive = owner is not None and is_visible(owner) and is_running(owner)
        return owner.pid if alive and owner is not None else None

    def newest(self, count: int) -> list[CheckpointManifest]:
        """Return the newest completed checkpoints, newest first."""
        found: list[CheckpointManifest] = []
        for checkpoint_id in reversed(self.store.manifests.ids()):
            if len(found) == count:
                break
            with suppress(CorruptCheckpointError):
                manifest = self.store.manifests.find(checkpoint_id)
                found += [] if manifest is None else [manifest]
        return found

    def since(self, generation: int, at_ms: int) -> list[CheckpointManifest]:
        """Return checkpoints of a generation that were triggered after ``at_ms``, oldest first."""
        recent = [m for m in self.newest(10) if m.generation == generation]
        return [m for m in reversed(recent) if m.triggered_at_ms >= at_ms]

    def mode_changes(self) -> list[ControlCommand]:
        """Commands that changed the mode and were carried out, oldest first."""
        log = ControlLog(self.store.objects, self.store.paths)
        done = [e for e in log.entries() if e.result and e.result.outcome == "completed"]
        return [e.command for e in done if e.command and isinstance(e.command.action, SetMode)]

    def kill_driver(self) -> int:
        """Kill the driver alone with SIGKILL; return its pid."""
        pid = self.driver_pid()
        assert pid is not None, "nobody to kill"
        os.kill(pid, signal.SIGKILL)
        return pid

    def damage(self, checkpoint_id: int) -> Path:
        """Flip a bit in a file that this checkpoint has and its predecessor has not."""
        ids = [each for each in self.store.manifests.ids() if each <= checkpoint_id]
        *_, before, victim = map(self.store.manifests.read, ids)
        shared = {file.path for file in before.files()}
        own = [file for file in victim.files() if file.path not in shared]
        file = max(own, key=lambda file: file.size_bytes)
        path = self.root / self.store.paths.absolute(file.path)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(content)
        return path


def duration_s(manifest: CheckpointManifest) -> float:
    """Return the time from trigger to completion."""
    return manifest.duration_ms / 1000


def alignment_s(manifest: CheckpointManifest) -> float:
    """Return the longest alignment time of any operator."""
    return max((float(a.alignment_ms) for a in manifest.alignment), default=0.0) / 1000


def in_words(manifests: list[CheckpointManifest]) -> str:
    """Describe the newest checkpoints for a user who waits for one.

    >>> in_words([])
    'no checkpoint yet'
    """
    return ", ".join(_words(manifests[-3:])) or "no checkpoint yet"


def _words(manifests: list[CheckpointManifest]) -> Iterator[str]:
    for each in manifests:
        yield f"{each.checkpoint_id} {each.mode} {duration_s(each):.2f} s"
