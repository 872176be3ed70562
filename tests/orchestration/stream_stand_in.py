# ruff: noqa: T201
"""A driver without Spark: completes real checkpoints in a real store, in the way it is told.

It is started like ``laminar run PROGRAM --set how=... --store URI --job NAME ...``.
"""

import argparse
import json
import os
import signal
import sys

from laminar_core.storage.checkpoint_store import CheckpointStore
from tests.storage.stores import claim, complete

parser = argparse.ArgumentParser()
parser.add_argument("--set", dest="how")
parser.add_argument("--store")
parser.add_argument("--job")
parser.add_argument("--take-over", action="store_true")
options, _ = parser.parse_known_args()
store = CheckpointStore.open(options.store, options.job)
how = options.how.removeprefix("how=")
generation = claim(store, base=store.highest_checkpoint_id())


def tell(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "time_ms": 0, **facts}), flush=True)


def checkpoint() -> None:
    checkpoint_id = (store.highest_checkpoint_id() or 0) + 1
    complete(store, checkpoint_id, generation)
    if how == "dies" and not options.take_over:
        os.kill(os.getpid(), signal.SIGKILL)  # Nobody has been told of this one.
    tell("checkpoint-completed", checkpoint_id=checkpoint_id)


tell("generation-started", generation=generation, rejected=[])
if how == "refuses":
    print("wrong schema: no column merchant", file=sys.stderr)
    sys.exit(2)
for _ in range(3):
    checkpoint()
tell("finished", outcome="finished", rows_in=30, rows_out=3, rows_late=0, checkpoints=3)
