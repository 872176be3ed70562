# ruff: noqa: T201
"""A driver without Spark: completes real checkpoints in a real store, in the way it is told.

It is started like ``laminar run PROGRAM --set how=... --store URI --job NAME ...``, or like
``laminar recover ... --dry-run``.
"""

import argparse
import json
import os
import signal
import sys
from dataclasses import replace

from laminar_core.checkpoint.recovery import RestoreFrom
from laminar_core.checkpoint.recovery_facts import Wish
from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.errors import LaminarError
from laminar_core.runtime.clock import SystemClock
from laminar_core.state.control import CancelJob, ControlBegun, ControlResult, StopJob
from laminar_core.state.manifest import Heartbeat
from laminar_core.storage.audit import AuditLog
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.control_log import ControlEntry, ControlLog
from tests.storage.stores import claimant, complete

parser = argparse.ArgumentParser()
parser.add_argument("verb")
parser.add_argument("--set", dest="how")
parser.add_argument("--store")
parser.add_argument("--job")
parser.add_argument("--workers", type=int)
parser.add_argument("--restore", type=int)
parser.add_argument("--expect-generation", type=int)
parser.add_argument("--reason", default="started")
parser.add_argument("--take-over", action="store_true")
options, _ = parser.parse_known_args()
how = options.how.removeprefix("how=")
store = CheckpointStore.open(options.store, options.job)
clock = SystemClock()
POLL_MS = 20


def tell(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "time_ms": clock.now_ms(), **facts}), flush=True)


def fail(why: str) -> None:
    tell("failed", code="refused", message=why)
    print(why, file=sys.stderr)
    sys.exit(2)


def chosen() -> CheckpointId | None:
    wish = Wish(checkpoint_id=options.restore and CheckpointId(options.restore))
    decision = store.choose_checkpoint(wish).decision
    return decision.checkpoint_id if isinstance(decision, RestoreFrom) else None


def dry_run() -> None:
    checkpoint_id = chosen()
    problems = [{"message": "loops cannot be rescaled"}] if how == "loops" else []
    report = {
        "job": options.job,
        "verdict": "refuse" if problems else "restore" if checkpoint_id else "fresh",
        "problems": problems,
        "checkpoint": checkpoint_id and {"checkpoint_id": checkpoint_id, "age_ms": 5000},
        "rows_to_replay": 40,
        "workers": options.workers,
    }
    print(json.dumps(report))
    sys.exit(2 if problems else 0)


def claim() -> Generation:
    expected = options.expect_generation
    try:
        return store.claim_generation(
            replace(claimant(actor=os.environ.get("LAMINAR_ACTOR", "test")), reason=options.reason),
            wait_ms=clock.wait_ms,
            take_over=options.take_over,
            expected=None if expected is None else Generation(expected),
        )
    except LaminarError as error:
        fail(str(error))
        raise


def start() -> Generation:
    """Up to the point where the workers run."""
    generation = claim()
    base = chosen()
    AuditLog(store.objects, store.paths, clock.now_ms).append(
        action="restore" if base else "start-fresh",
        actor="test",
        reason=options.reason,
        after={"generation": generation, "parallelism": options.workers},
    )
    store.record_base(generation, base)
    tell(
        "generation-started",
        generation=generation,
        rejected=[],
        restored_checkpoint_id=base,
        parallelism=options.workers,
    )
    if how == "refuses":
        fail("wrong schema: no column merchant")
    tell("workers-running", generation=generation, pids=[], hosts=[])
    return generation


def checkpoint(generation: Generation) -> int:
    checkpoint_id = (store.highest_checkpoint_id() or 0) + 1
    complete(store, checkpoint_id, generation)
    if how == "dies" and not options.take_over:
        os.kill(os.getpid(), signal.SIGKILL)  # Nobody has been told of this one.
    tell("checkpoint-completed", checkpoint_id=checkpoint_id)
    return checkpoint_id


def end(generation: Generation, outcome: str) -> None:
    store.end_generation(generation, outcome, "")
    if outcome != "cancelled":
        tell("finished", outcome=outcome, rows_in=30, rows_out=3, rows_late=0, checkpoints=3)
    sys.exit(0)


def obey(log: ControlLog, generation: Generation, entry: ControlEntry) -> None:
    """Do what a command asks for, as a driver's desk does."""
    assert entry.command is not None
    log.begin(entry.number, ControlBegun(generation=generation, begun_at_ms=1))
    refuses = how == "goes-on" or entry.command.generation != generation
    checkpoint_id = None
    if not refuses and isinstance(entry.command.action, StopJob):
        checkpoint_id = checkpoint(generation)
    result = ControlResult(
        outcome="refused" if refuses else "completed",
        reason="it goes on" if refuses else "",
        generation=generation,
        answered_at_ms=1,
        checkpoint_id=checkpoint_id,
    )
    log.answer(entry.number, result)
    if not refuses:
        end(generation, "cancelled" if isinstance(entry.command.action, CancelJob) else "stopped")


def serve(generation: Generation) -> None:
    """Run until somebody ends it."""
    signal.signal(signal.SIGTERM, lambda *_: end(generation, "stopped"))
    store.beat(generation, Heartbeat(sequence=1, at_ms=clock.now_ms(), progress={"rows_in": 70}))
    checkpoint(generation)
    tell("data-flowing", generation=generation)
    log = ControlLog(store.objects, store.paths)
    seen = max(log.numbers(), default=0)
    while True:
        for entry in log.read_after(seen):
            seen = entry.number
            obey(log, generation, entry)
        clock.wait_ms(POLL_MS)


if options.verb == "recover":
    dry_run()
if how == "never-claims":
    signal.pause()
running = start()
if how in {"serves", "goes-on", "loops"}:
    serve(running)
for _ in range(3):
    checkpoint(running)
tell("finished", outcome="finished", rows_in=30, rows_out=3, rows_late=0, checkpoints=3)
