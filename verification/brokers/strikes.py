"""A process ends or stops itself at a step: a kill that hits a moment, and not one near it.

A campaign arms one strike. The first process that comes to its step takes it and sends the signal
to itself, so what comes after the step never happens, or only once the process is woken.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

VARIABLE = "LAMINAR_VERIFICATION_STRIKES"
"""The environment variable with the folder of the strikes."""

Act = Literal["dies", "sleeps"]
_SIGNALS: dict[Act, signal.Signals] = {"dies": signal.SIGKILL, "sleeps": signal.SIGSTOP}
_SEEN = Counter[str]()


@dataclass(frozen=True, slots=True)
class Strike:
    """One strike: at the ``number``-th time that a process comes to ``step``."""

    step: str
    act: Act
    number: int = 1
    after: str = ""
    """A step that the process must have come to before; empty: none."""


class Strikes:
    """The side that arms strikes, and sees whether they struck."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that tell processes where the strikes are."""
        return {VARIABLE: str(self.folder)}

    def arm(self, strike: Strike) -> None:
        """Let the next process that comes to the step be struck; one strike at a time."""
        (self.folder / "fired").unlink(missing_ok=True)
        draft = self.folder / "draft"
        draft.write_text(json.dumps(asdict(strike)))
        draft.rename(self.folder / "armed")

    def struck(self) -> int | None:
        """Return the process that was struck; None: it was none."""
        try:
            return int((self.folder / "fired").read_text())
        except FileNotFoundError:
            return None


def reach(step: str, before_sleep: Callable[[], None] = lambda: None) -> None:
    """Note that this process comes to a step; it may not return."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    _SEEN[step] += 1
    armed = Path(folder) / "armed"
    try:
        strike = Strike(**json.loads(armed.read_text()))
    except FileNotFoundError:
        return
    is_early = strike.number > _SEEN[step] or (strike.after and not _SEEN[strike.after])
    if strike.step != step or is_early:
        return
    try:
        armed.rename(Path(folder) / f"taken-{os.getpid()}")
    except FileNotFoundError:
        return  # Another process was first.
    draft = Path(folder) / f"fired-{os.getpid()}"
    draft.write_text(str(os.getpid()))
    draft.rename(Path(folder) / "fired")
    if strike.act == "sleeps":
        before_sleep()
    os.kill(os.getpid(), _SIGNALS[strike.act])
