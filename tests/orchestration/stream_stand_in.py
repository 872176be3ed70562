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

from laminar_core.errors import LaminarError
from laminar_core.host.clock import SystemClock
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.orchestration.played_driver import Options, PlayedDriver, wanted

POLL_MS = 20

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
words, _ = parser.parse_known_args()
how = words.how.removeprefix("how=")
store = CheckpointStore.open(words.store, words.job)
store.objects.create()
options = Options(
    words.workers,
    words.restore,
    words.expect_generation,
    words.reason,
    os.environ.get("LAMINAR_ACTOR", "test"),
    words.take_over,
)
clock = SystemClock()


def tell(event: str, **facts: object) -> None:
    if event == "checkpoint-completed" and how == "dies" and not options.take_over:
        os.kill(os.getpid(), signal.SIGKILL)  # Nobody has been told of this one.
    print(json.dumps({"event": event, "time_ms": clock.now_ms(), **facts}), flush=True)


def fail(why: str) -> None:
    tell("failed", code="refused", message=why)
    print(why, file=sys.stderr)
    sys.exit(2)


def dry_run() -> None:
    checkpoint_id = wanted(store, options)
    problems = [{"message": "loops cannot be rescaled"}] if how == "loops" else []
    report = {
        "job": words.job,
        "verdict": "refuse" if problems else "restore" if checkpoint_id else "fresh",
        "problems": problems,
        "checkpoint": checkpoint_id and {"checkpoint_id": checkpoint_id, "age_ms": 5000},
        "rows_to_replay": 40,
        "workers": options.workers,
    }
    print(json.dumps(report))


def run() -> None:
    driver = PlayedDriver(store, how, options, clock, tell)
    if how == "never-claims":
        signal.pause()
    try:
        driver.start()
    except LaminarError as error:
        fail(str(error))
    if how == "refuses":
        fail("wrong schema: no column merchant")
    if how in {"serves", "goes-on"}:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(driver.end("stopped")))
        driver.run()
        while driver.outcome is None:
            driver.look()
            clock.wait_ms(POLL_MS)
    else:
        driver.tell("workers-running", generation=driver.generation)
        for _ in range(3):
            driver.checkpoint()
        driver.tell(
            "finished", outcome="finished", rows_in=30, rows_out=3, rows_late=0, checkpoints=3
        )


dry_run() if words.verb == "recover" else run()
