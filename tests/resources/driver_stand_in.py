"""Behaves like ``laminar run --json`` in one of the ways that its first argument names."""

# ruff: noqa: T201

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

behaviour, notes = sys.argv[1], Path(sys.argv[2])
take_over = "--take-over" in sys.argv


def tell(event: str, **facts: object) -> None:
    """Write one line at once: a signal may come meanwhile, and its handler writes, too."""
    line = json.dumps({"event": event, "time_ms": 0, **facts})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def stop_gracefully(*_: object) -> None:
    tell("checkpoint-completed", checkpoint_id=7)
    tell("finished", outcome="stopped", rows_in=1)
    sys.exit(0)


def start_worker() -> int:
    """A process in a group of its own that outlives its parent, as PySpark's worker daemon."""
    command = "import signal, os; os.setpgid(0, 0); print(flush=True); signal.pause()"
    worker = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE)
    assert worker.stdout
    worker.stdout.readline()
    return worker.pid


def pause() -> None:
    while True:
        signal.pause()


is_deaf = behaviour.startswith(("hangs", "bursts"))
signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf else stop_gracefully)
with notes.open("a") as file:
    print(os.getpid(), file=file)
    if behaviour != "refuses":
        print(start_worker(), file=file)
print("this is no event", flush=True)
print('{"nor": "this"}', flush=True)
if behaviour in {"never-claims", "hangs-before"}:
    pause()
tell("generation-started", generation=2 if take_over else 1)
if behaviour == "refuses":
    tell("failed", code="no-such-path", message="no such path: data/missing")
    print("no such path: data/missing", file=sys.stderr)
    sys.exit(2)
if behaviour == "dies" or (behaviour == "dies-once" and not take_over):
    os.kill(os.getpid(), signal.SIGKILL)
if behaviour == "dies-once":
    tell("finished", outcome="finished", rows_in=5)
    sys.exit(0)
if behaviour == "restarts":
    tell("generation-failed", generation=1, code="worker-failed", reason="a worker died")
    tell("generation-started", generation=2)
if behaviour != "never-runs":
    tell("workers-running", generation=2 if behaviour == "restarts" else 1)
if behaviour == "bursts":  # Its last events come together with the one before them.
    last = ("progress", "checkpoint-completed", "finished")
    os.write(1, "".join(json.dumps({"event": name, "time_ms": 0}) + "\n" for name in last).encode())
    sys.exit(0)
tell("progress", rows_in=1)
if behaviour == "flows":
    tell("data-flowing", generation=1)
pause()
