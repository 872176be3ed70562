"""One driver of a relay, from outside: its events, its life, and signals to it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from verification.brokers.relay import RelaySettings

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120
"""Longest wait for an event; a machine that is busy takes its time."""

JsonEvent = dict[str, Any]


class RelayError(AssertionError):
    """Something did not come that had to come."""


class RelayDriver:
    """A driver in a session of its own; a context manager that leaves no process behind."""

    def __init__(
        self, settings: RelaySettings, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.events: list[JsonEvent] = []
        """The events so far. One that falls asleep says ``asleep``; the last one is ``over``."""
        self._queue: queue.SimpleQueue[JsonEvent] = queue.SimpleQueue()
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - its own words
                [sys.executable, "-m", "verification.brokers.relay", settings.model_dump_json()],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                start_new_session=True,
            )  # fmt: skip
        self._threads = [
            threading.Thread(target=act, daemon=True) for act in (self._read, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it, and everything that was started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """The processes of the newest workers that it had; empty: none yet."""
        found = [each["pids"] for each in self.events if each["event"] == "workers-running"]
        return found[-1] if found else []

    @property
    def progress(self) -> JsonEvent:
        """The newest numbers; empty if there are none."""
        found = [each for each in self.events if each["event"] == "progress"]
        return found[-1] if found else {}

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as ``kill -9`` does; its workers go on until they notice."""
        self._process.kill()

    def next(self, seconds: float = SECONDS_MAX) -> JsonEvent:
        """Return the next event.

        Raises:
            RelayError: none came.
        """
        try:
            event = self._queue.get(timeout=seconds)
        except queue.Empty:
            raise RelayError(f"no event in {seconds} s; {self.said()}") from None
        self.events.append(event)
        return event

    def wait_for(self, what: str, is_so: Callable[[JsonEvent], bool]) -> JsonEvent:
        """Take events until one is what is waited for.

        Raises:
            RelayError: it did not come.
        """
        while not is_so(event := self.next()):
            if event["event"] in ("over", "refused"):
                raise RelayError(f"{what}: the driver ended; {self.said()}")
        return event

    def stop(self) -> None:
        """Let it take a last checkpoint, publish it and end.

        Raises:
            RelayError: it did not end well.
        """
        self.signal(signal.SIGTERM)
        self.wait_for("stopping", lambda event: event["event"] == "over")
        if not self.ended_well():
            raise RelayError(f"a driver that was to stop failed; {self.said()}")

    def ended_well(self) -> bool:
        """Return whether it ended with exit code 0; call it when it is over."""
        return self._process.wait(SECONDS_MAX) == 0

    def said(self) -> str:
        """Return its last words and events."""
        words = self._log.read_text(errors="replace")[-1500:]
        events = [each for each in self.events if each["event"] != "progress"][-6:]
        return f"it said {words!r}, and last {json.dumps(events)[-1500:]}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._queue.put(json.loads(line))

    def _watch(self) -> None:
        self._process.wait()
        self._queue.put({"event": "over"})
