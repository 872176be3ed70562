"""Points at which a process of the attacked stream waits until the campaign lets it go on.

Attacks that only watch events hit the moment between two particular writes by luck. So the store of
the driver and of its workers is wrapped: whoever comes to the point that is armed writes down its
pid and waits. A rename decides who that is, so of several workers one is held.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.objectstore.local import LocalObjectStore

VARIABLE = "LAMINAR_KILL_CAMPAIGN_PAUSES"
POLL_MS = 20

Role = Literal["driver", "worker"]
Point = Literal[
    "claim", "base", "commit", "deletion", "stop-trigger", "end", "opened", "restore", "snapshot"
]


def point_of(role: Role, operation: str, key: str, data: bytes = b"") -> Point | None:
    """Return the point at which a call of the store stands, just before it is made.

    >>> point_of("driver", "put_if_absent", "payments/commits/0000000003.json")
    'commit'
    """
    _, folder, *names = key.split("/")
    name = names[-1] if names else ""
    if role == "worker":
        if folder not in ("checkpoints", "shared"):
            return None
        return "snapshot" if operation.startswith("put") else "restore"
    match folder, operation:
        case "commits", "put_if_absent":
            return "commit"
        case "checkpoints" | "shared", "delete":
            return "deletion"
        case "checkpoints", "put_if_absent" if name == "trigger.json" and b'"stop"' in data:
            return "stop-trigger"
        case "generations", "put_if_absent" if name.endswith(".base.json"):
            return "base"
        case "generations", "put_if_absent" if name.endswith(".end.json"):
            return "end"
        case "generations", "put_if_absent" if name.count(".") == 1:
            return "claim"
    return None


class Pauses:
    """The campaign's side: arms one point at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, point: Point) -> None:
        """Let the next process that comes to this point wait there."""
        self.disarm()
        (self.folder / "released").unlink(missing_ok=True)
        (self.folder / f"armed-{point}").touch()

    def reached_by(self) -> int | None:
        """Return the pid of the process that waits."""
        try:
            return int((self.folder / "reached").read_text())
        except FileNotFoundError:
            return None

    def release(self) -> None:
        """Let whoever waits go on, and hold nobody else."""
        (self.folder / "released").touch()
        self.disarm()

    def disarm(self) -> None:
        """Forget the point that is armed, and who came to it."""
        for pattern in ("armed-*", "taken", "reached"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)


def install(role: Role) -> None:
    """Wrap the local store of this process, if it belongs to a campaign."""
    folder = os.environ.get(VARIABLE)
    if folder is None or getattr(LocalObjectStore, "_is_paused", False):
        return
    clock = SystemClock()
    for operation in ("get", "put", "put_if_absent", "delete"):
        _wrap(operation, role, Path(folder), clock)
    LocalObjectStore._is_paused = True  # type: ignore[attr-defined]
    if role == "worker":
        opened = LocalObjectStore.__init__

        def init(self: LocalObjectStore, root: Any) -> None:
            _wait_at("opened", Path(folder), clock)
            opened(self, root)

        LocalObjectStore.__init__ = init  # type: ignore[method-assign]


def _wrap(operation: str, role: Role, folder: Path, clock: Clock) -> None:
    original = getattr(LocalObjectStore, operation)

    def call(self: LocalObjectStore, key: str, *rest: Any, **named: Any) -> Any:
        data = rest[0] if rest and isinstance(rest[0], bytes) else b""
        point = point_of(role, operation, key, data)
        if point is not None:
            _wait_at(point, folder, clock)
        return original(self, key, *rest, **named)

    setattr(LocalObjectStore, operation, call)


def _wait_at(point: Point, folder: Path, clock: Clock) -> None:
    try:
        (folder / f"armed-{point}").rename(folder / "taken")
    except FileNotFoundError:
        return
    mine = folder / f"reached-{os.getpid()}"
    with suppress(FileNotFoundError):  # The campaign may have given up meanwhile.
        mine.write_text(str(os.getpid()))
        mine.rename(folder / "reached")
    while not (folder / "released").exists():
        clock.wait_ms(POLL_MS)
