"""Stores in a directory with forged objects, one seed each.

The honest store has one record of every kind, and a savepoint beside it. A forged one is a copy
with one to three forged objects: records with other values and correct digests, special files in
their place, sparse files with the length in a manifest, and meaningless names.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.commands import (
    ControlBegun,
    ControlCommand,
    ControlResult,
    TakeCheckpoint,
)
from laminar_core.records.drill import DrillRecord
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.records import create_or_confirm
from laminar_core.store.savepoint_export import export_savepoint
from laminar_core.testing.simulation import JOB
from verification.corruption import class_of
from verification.corruption_campaign import make_lab
from verification.forgery import forge

_STRAY = 0.2
_REPLACED = 0.3
HOLES_BYTES = (1 << 33, 1 << 40, (1 << 40) + 1)
"""More than a process may take in the campaign."""
_STRAYS = (
    *(
        "checkpoints/0000000000/x",
        "checkpoints/9999999999/x",
        "checkpoints/9999999999/trigger.json",
    ),
    *(
        "checkpoints/12/manifest.json",
        "checkpoints/stray",
        "checkpoints/0000000003/manifest.json/x",
    ),
    *("generations/0000000000.json", "generations/9999999999.json", "generations/stray.json"),
    *("generations/9000000000.json", "generations/9999999999.end.json", "generations/1.json"),
    *("history/0000000000.json", "history/9999999999.json", "commits/9999999999.json"),
    *("commits/9000000000.json", "control/0000000000.json", "control/9999999999.json"),
    *(
        "audit/0000000000.json",
        "audit/9999999999.json",
        "audit/a\nb.json",
        "drills/9999999999.json",
    ),
    *("retention/0000000000.plan.json", "retention/9999999999.decision.json", "retention/x"),
    *("pins/0000000000-a.json", "pins/9999999999-a.json", "pins/stray", "shared/x", "shared/a/b/c"),
    *("shared/op/9999999999-0-00000000.seg", "retention/quarantine/x", "checkpoints/\udcff/x"),
    *(f"checkpoints/0000000003/{'x' * 255}", "../stray", "../é", "../0", "../_x/y"),
)


ANN = Actor("ann", reason="a test")


@dataclass(frozen=True, slots=True)
class HonestStore:
    """A directory with ``store`` and ``savepoints``, and the checkpoints to ask for."""

    place: Path
    older_id: CheckpointId
    newest_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Forgery:
    """A forged copy, and what was done to it."""

    place: Path
    changes: tuple[str, ...]


def make_honest_store(place: Path) -> HonestStore:
    """Run a job, and leave a record of each kind in ``place``."""
    lab = make_lab("windows, after retention")
    objects = LocalObjectStore(place / "store")
    objects.create()
    for key in lab.disk.list(""):
        objects.put(key, lab.disk.get(key) or b"")
    store, clock = CheckpointStore(objects, JOB), ManualClock()
    audit = AuditLog(objects, store.paths, clock.now_ms)
    for action in ("stop", "pin"):
        intended = audit.append(action=action, actor=ANN, after={"a": [1]})
        audit.conclude(intended, "done", reason="it went well")
    _leave_commands(store)
    drill = DrillRecord(
        job=JOB,
        number=1,
        outcome="passed",
        checkpoint_id=store.manifests.ids()[-1],
        workers_before=2,
        workers=2,
        started_at_ms=1,
        duration_ms=1.0,
        actor="ann",
        reason="a test",
    )
    create_or_confirm(objects, store.paths.drill(1), drill.to_bytes())
    ids = store.manifests.ids()
    target = str(place / "savepoints" / "one")
    export_savepoint(store, ids[-1], target, ANN, clock.now_ms())
    return HonestStore(place, ids[-2], ids[-1])


def _leave_commands(store: CheckpointStore) -> None:
    log = ControlLog(store.objects, store.paths)
    for number in (1, 2):
        command = ControlCommand(
            command_id=f"command-{number}",
            job=JOB,
            generation=1,
            action=TakeCheckpoint(),
            actor=ANN.name,
            actor_kind=ANN.kind,
            reason=ANN.reason,
            requested_at_ms=1,
            expires_at_ms=2,
        )
        log.append(command)
    log.begin(1, ControlBegun(generation=1, begun_at_ms=1))
    log.answer(1, ControlResult(outcome="completed", generation=1, answered_at_ms=2))


def forge_store(honest: HonestStore, place: Path, seed: int) -> Forgery:
    """Copy the honest store to ``place`` and forge something in the copy."""
    dice = Random(f"forgery {seed}")  # noqa: S311 - a simulation, not a secret
    for name in ("store", "savepoints"):
        shutil.copytree(honest.place / name, place / name)
    changes = [_change(place, dice) for _ in range(dice.choice((1, 1, 2, 3)))]
    return Forgery(place, tuple(changes))


def _change(place: Path, dice: Random) -> str:
    if dice.random() < _STRAY:
        return _add_stray(place / "store" / JOB, dice)
    target = _drawn(place, dice)
    if dice.random() < _REPLACED:
        return _replace(target, dice)
    data = target.read_bytes()
    target.write_bytes(forge(data, dice))
    return f"forged {target.relative_to(place)}"


def _drawn(place: Path, dice: Random) -> Path:
    by_class: dict[str, list[Path]] = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.is_symlink():
            key = "/".join(path.relative_to(place).parts[1:])
            kind = "savepoint" if "savepoints" in path.parts else class_of(key)
            by_class.setdefault(kind, []).append(path)
    return dice.choice(by_class[dice.choice(sorted(by_class))])


def _replace(target: Path, dice: Random) -> str:
    """Put something else than a file in its place, or a file of holes."""
    kind = dice.choice(("pipe", "link", "endless", "loop", "folder", "holes", "linked folder"))
    if kind == "linked folder":
        folder = target.parent
        folder.rename(folder.with_name("moved"))
        folder.symlink_to("moved")
        return f"{folder.name} is a link"
    target.unlink()
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
        (target / "x").write_bytes(b"")
    elif kind == "holes":
        with target.open("wb") as file:
            file.truncate(dice.choice(HOLES_BYTES))
    else:
        ends = {"link": "/etc/passwd", "endless": "/dev/zero", "loop": target.name}
        target.symlink_to(ends[kind])
    return f"{kind} at {target}"


def _add_stray(job: Path, dice: Random) -> str:
    path = job / dice.choice(_STRAYS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.choice((b"", b"{}", b"x" * 100)))
    except OSError:  # A file stands where its folder would be.
        return "nothing"
    return f"stray {path.relative_to(job)!s}"
