"""Ticks of the sensor that reports checkpoints, in a process of their own.

    python -m benchmarks.kept_ticks STORE COUNT

Prints their times as JSON: those that catch up with all checkpoints of the store, as after a lost
cursor, and those that come then and find nothing new.
"""

# Dagster's functions are only partly typed.
# pyright: reportUnknownMemberType=false

import json
import sys
from time import perf_counter, process_time

import dagster as dg

from benchmarks.kept import JOB, ROUNDS, Took
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.sensors.observer.new_records import ObserverCursor
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import RoundCursor

_TICKS_MAX = 1_000


def ticks_of(store: str, count: int) -> dict[str, list[Took]]:
    """Let the sensor report all checkpoints of a store, and then look again."""
    reporter = build_checkpoint_reporter({JOB: AlertPolicy()})
    checkpoints = CheckpointStoreResource(uri=store)
    behind: list[Took] = []
    quiet: list[Took] = []
    cursor: str | None = None
    with dg.DagsterInstance.ephemeral() as instance:
        while len(quiet) < ROUNDS:
            caught_up = reported(cursor) == count
            cursor, took = _tick(reporter, instance, checkpoints, cursor)
            (quiet if caught_up else behind).append(took)
            assert len(behind) < _TICKS_MAX, f"{reported(cursor)} of {count} are reported"
    return {"tick": quiet, "tick_behind": behind}


def reported(cursor: str | None) -> int:
    """Return the number of the last attempt that is reported."""
    stream = RoundCursor.read(cursor).streams.get(JOB)
    return ObserverCursor.read(stream.cursor).attempt if stream else 0


def _tick(
    reporter: dg.SensorDefinition,
    instance: dg.DagsterInstance,
    checkpoints: CheckpointStoreResource,
    cursor: str | None,
) -> tuple[str | None, Took]:
    with dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        sensor_name=reporter.name,
        definitions=dg.Definitions(sensors=[reporter]),
        resources={"laminar_checkpoints": checkpoints},
    ) as context:
        wall_s, cpu_s = perf_counter(), process_time()
        result = reporter(context)
        took = Took(perf_counter() - wall_s, process_time() - cpu_s)
    assert isinstance(result, dg.SensorResult)
    return result.cursor, took


def main(store: str, count: str) -> None:
    """Print the times."""
    print(json.dumps(ticks_of(store, int(count))))  # noqa: T201 - its output


if __name__ == "__main__":
    main(*sys.argv[1:])
