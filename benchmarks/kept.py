"""Lists, plans and Dagster's ticks of a job that keeps one to ten thousand checkpoints.

The store is what a driver leaves: two files per checkpoint, a manifest of six operators and two
workers, the records of its attempt and commit, and the index. It is written without syncing, in a
directory. Commands are whole processes, with their start. What they print is compared with what the
store has.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Series
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import dataset
from benchmarks.result import Result, median
from laminar_core.codec.digest import sha256_hex
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.checkpoint_index import BLOCK
from laminar_core.records.manifest import (
    CheckpointManifest,
    CommitRecord,
    HistoryRecord,
    TriggerRecord,
    fingerprint_of,
)
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import JsonObject
from laminar_core.records.segment import SegmentRef
from laminar_core.store.checkpoint_index import CheckpointIndex
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.store.owner import this_process

COUNTS = (1, 100, 1_000, 10_000)
ROUNDS = 3
KEPT_LAST = 3
TARGET_S = 1.0
JOB = "payments"
_OPERATORS = ("payments", "times", "partial", "per-merchant", "names", "totals")
_STATEFUL = "per-merchant"
_WORKERS = 2
_START_MS, _INTERVAL_MS = 1_700_000_000_000, 1_000
_GENERATION = Generation(1)
_TIMES = {"list": "checkpoints list", "plan": "retention plan"}


class Took(NamedTuple):
    """Time of a command or a tick."""

    wall_s: float
    cpu_s: float


def kept() -> list[Result]:
    """List, plan and tick with 1 to 10,000 checkpoints kept."""
    measured: dict[int, dict[str, list[Took]]] = {}
    for count in COUNTS:
        folder = dataset.fresh("kept")
        write_store(folder, count)
        measured[count] = _measure(str(folder), count)
    dataset.fresh("kept")
    return list(results_of(measured))


def results_of(measured: Mapping[int, Mapping[str, Series[Took]]]) -> Iterator[Result]:
    """Yield the figures of all commands, and the factor from each number of checkpoints on."""
    for count, by_name in measured.items():
        for name, took in by_name.items():
            target = TARGET_S if count == max(COUNTS) else None
            figure, walls = f"kept_{count}_{name}", [each.wall_s for each in took]
            yield Result.of_rounds(figure, walls, "s", "lower", target)
            yield Result.of_rounds(f"{figure}_cpu", [each.cpu_s for each in took], "s", "lower")
    for fewer, more in pairwise(measured):
        for name, took in measured[more].items():
            before = median([each.cpu_s for each in measured[fewer][name]])
            growth = median([each.cpu_s for each in took]) / before / (more / fewer)
            yield Result(f"kept_{more}_{name}_growth", growth, "to linear", "lower", 1.5)


# --- the store ------------------------------------------------------------------------------------


def write_store(folder: Path, count: int) -> None:
    """Write what a driver leaves after so many checkpoints, none of them deleted."""
    store = CheckpointStore.open(str(folder), JOB)
    store.objects.create()
    claimant = Claimant(this_process(), Actor("benchmark", reason="to measure"), "0", _START_MS)
    assert store.claims.claim(claimant, wait_ms=_never) == _GENERATION
    store.generations.record_base(_GENERATION, None)
    for number in range(1, count + 1):
        for key, data in _objects_of(store, CheckpointId(number)):
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    index = CheckpointIndex(store.objects, store.paths)
    sha256 = index.store_sha256()
    assert sha256 is not None
    for block in range(1, count // BLOCK + 1):
        index.write(block, sha256)


def _never(wait_ms: float) -> None:
    raise AssertionError(f"nobody else has claimed it, and yet it waits for {wait_ms} ms")


def _objects_of(store: CheckpointStore, number: CheckpointId) -> Iterator[tuple[str, bytes]]:
    paths, at_ms = store.paths, _START_MS + number * _INTERVAL_MS
    files = {
        key: key.encode() for key in (paths.state(number, _STATEFUL, n) for n in range(_WORKERS))
    }
    yield from files.items()
    trigger = TriggerRecord(
        checkpoint_id=number,
        generation=_GENERATION,
        kind=CheckpointKind.PERIODIC,
        triggered_at_ms=at_ms,
    )
    ended = HistoryRecord(
        checkpoint_id=number,
        generation=_GENERATION,
        kind=CheckpointKind.PERIODIC,
        outcome="completed",
        reason="",
        triggered_at_ms=at_ms,
        ended_at_ms=at_ms,
        duration_ms=40.0,
    )
    commit = CommitRecord(checkpoint_id=number, generation=_GENERATION, committed_at_ms=at_ms)
    yield paths.trigger(number), trigger.to_bytes()
    yield paths.manifest(number), manifest_of(store, number, files).to_bytes()
    yield paths.outcome(number), ended.to_bytes()
    yield paths.commit(number), commit.to_bytes()


def manifest_of(
    store: CheckpointStore, number: CheckpointId, files: Mapping[str, bytes]
) -> CheckpointManifest:
    """Return the manifest of a checkpoint with these files, one per worker."""
    described: dict[str, JsonObject] = {name: {"kind": name} for name in _OPERATORS}
    segments = [
        SegmentRef(
            path=store.paths.relative(key),
            size_bytes=len(data),
            sha256=sha256_hex(data),
            row_count=1,
        )
        for key, data in files.items()
    ]
    return CheckpointManifest(
        job=JOB,
        generation=_GENERATION,
        checkpoint_id=number,
        parent_checkpoint_id=CheckpointId(number - 1) if number > 1 else None,
        kind=CheckpointKind.PERIODIC,
        mode="aligned",
        is_unaligned=False,
        triggered_at_ms=_START_MS + number * _INTERVAL_MS,
        completed_at_ms=_START_MS + number * _INTERVAL_MS,
        duration_ms=40.0,
        max_parallelism=1_024,
        parallelism=dict.fromkeys(described, _WORKERS),
        fingerprint={name: fingerprint_of(text) for name, text in described.items()},
        operators_description=described,
        edges=(),
        code_version="benchmark",
        subtasks=tuple(
            SubtaskEntry(
                operator_id=name,
                subtask_index=index,
                segments=(segments[index],) if name == _STATEFUL else (),
                written_bytes=segments[index].size_bytes if name == _STATEFUL else 0,
                sync_ms=0.5,
                async_ms=12.0,
            )
            for name in _OPERATORS
            for index in range(_WORKERS)
        ),
        alignment=(),
        inflight_files=(),
        inflight_data=(),
    )


# --- commands and ticks ---------------------------------------------------------------------------


def _measure(store: str, count: int) -> dict[str, list[Took]]:
    found: dict[str, list[Took]] = {}
    for _ in range(ROUNDS):
        for name, words in _TIMES.items():
            laminar = [sys.executable, "-m", "laminar_core.cli", *words.split()]
            printed, took = timed([*laminar, "--store", store, "--json"])
            check(name, json.loads(printed), count)
            found.setdefault(name, []).append(took)
    printed, _ = timed([sys.executable, "-m", "benchmarks.kept_ticks", store, str(count)])
    for name, ticks in json.loads(printed).items():
        found[name] = [Took(*tick) for tick in ticks]
    return found


def check(name: str, printed: Any, count: int) -> None:  # noqa: ANN401 - of two commands
    """Compare what a command printed with what the store has."""
    if name == "list":
        assert [each["checkpoint_id"] for each in printed] == list(range(1, count + 1))
    else:
        assert printed["deleted_checkpoints"] == list(range(1, count - KEPT_LAST + 1))


def timed(command: Series[str]) -> tuple[bytes, Took]:
    """Run a command; return what it printed, and its time."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return printed, Took(time.perf_counter() - started, usage.ru_utime + usage.ru_stime)
