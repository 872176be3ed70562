"""Many corruptions of one real store: each is harmless, or found and recovered from.

The store belongs to a job with several generations, incremental and unaligned checkpoints, and a
step back in between. Before any damage every checkpoint is restored once: that is the truth. After
each corruption it is known which checkpoints are still whole, byte by byte. Recovery has to find
the newest of them, restore exactly the truth, and name all that it rejected. If none is whole it
has to refuse. Any other result, and any other error, is a violation.
"""

import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import pyarrow as pa

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.options import JobOptions
from laminar_core.errors import ErrorCode, LaminarError
from laminar_core.host.clock import Clock
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.paths import JobPaths
from laminar_core.records.retention import PinRecord
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import (
    DELAY,
    BuildJob,
    Burden,
    Job,
    Row,
    doubled_windows,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.ledger import Ledger
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.restored_view import View, recover_and_look
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.world import ProcessKilledError
from verification.corruption import Corruption, corrupt

PARALLELISM = 2
ROWS = 120
"""Rows in each of three splits."""
ROW_MS = 40.0
"""Simulated time for each row, so that rows are in flight and there is time for checkpoints."""


def windows_job(parallelism: int) -> Job:
    """Return a job with two keyed window exchanges, and output in every checkpoint."""
    del parallelism
    tables, burden = payments(rows=ROWS), Burden()
    p = Pipeline("windows")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    again = (
        windowed(dealt)
        .key_by("key")
        .window(windows.tumbling("20 seconds"), time="window_start")
        .aggregate("again", agg.sum("count", name="count"), agg.sum("total", name="total"))
    )
    every = rows_of(tables)
    outputs = {"raw": (dealt, every), "out": (again.rebalance(), doubled_windows(totals(every)))}
    return with_ledgers(p, outputs, burden)


def copies_job(parallelism: int) -> Job:
    """Return a job that deduplicates doubled rows: state without windows, which never expires."""
    del parallelism
    burden, numbers = Burden(), Counter[str]()
    rows: list[Row] = []
    for row in rows_of(payments(rows=ROWS)):
        rows.append({"key": row["key"], "boot": 1, "n": numbers[row["key"]], "value": row["value"]})
        numbers[row["key"]] += 1
    table, late = pa.Table.from_pylist(rows), pa.Table.from_pylist(rows)
    p = Pipeline("copies")
    read = p.source("in", MemorySource([table, late.slice(90), late.slice(0, 150)], batch_rows=6))
    once = read.map(burden.carry, name="slow").deduplicate(
        producer="key", generation="boot", sequence="n", name="once"
    )
    return with_ledgers(p, {"out": (once.rebalance(), rows)}, burden)


JOBS: Mapping[str, BuildJob] = {
    "windows": windows_job,
    "copies": copies_job,
    "windows, after retention": windows_job,
}
KEPT = 5
"""Number of checkpoints that retention keeps, besides a pinned one."""

Outcome = Literal["harmless", "recovered", "refused", "violation"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one corruption. ``refused``: no checkpoint was whole any more."""

    seed: int
    job: str
    corruption: Corruption
    outcome: Outcome
    restored_id: int | None = None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-compatible values."""
        return {
            "seed": self.seed,
            "job": self.job,
            "corruption": self.corruption.kind,
            "object": self.corruption.object_class,
            "keys": list(self.corruption.keys),
            "outcome": self.outcome,
            "restored_checkpoint_id": self.restored_id,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class Lab:
    """A store as its job left it, and the truth about every checkpoint in it."""

    name: str
    build: BuildJob
    disk: SimulatedDisk
    ledgers: Mapping[str, Ledger]
    options: JobOptions
    drivers: int
    objects: Mapping[CheckpointId, frozenset[str]]
    """Per checkpoint on the timeline, the objects that have to be whole."""
    truth: Mapping[CheckpointId, View]


def make_lab(name: str) -> Lab:
    """Run the job, with crashes and a step back, and leave it in the middle."""
    build = JOBS[name]
    job = build(PARALLELISM)
    disk = SimulatedDisk()
    checkpoint = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=0)
    simulation = Simulation(
        job.plan, parallelism=PARALLELISM, checkpoint=checkpoint, objects=disk, seed=3
    )
    job.burden.row_ms, job.burden.spend = ROW_MS, simulation.world.spend
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), 4)
    for count in (8, 11, 15):
        simulation.when(CheckpointCompleted, simulation.kill_driver, count)
    _run_until_killed(simulation)
    _run_until_killed(simulation)
    _run_until_killed(simulation, restore_id=simulation.store.manifests.ids()[-4])
    store = simulation.store
    if name.endswith("after retention"):
        _retain(store, simulation.world.clock)
    ids = [s.checkpoint_id for s in store.list_summaries() if s.outcome == "completed"]
    gone = {s.checkpoint_id for s in store.list_summaries() if s.orphan or s.deleted}
    manifests = {n: store.manifests.read(n) for n in ids if n not in gone}
    lab = Lab(
        name=name,
        build=build,
        disk=disk,
        ledgers=job.ledgers,
        options=simulation.options,
        drivers=len(simulation.drivers),
        objects={n: _objects_of(store, manifest) for n, manifest in manifests.items()},
        truth={},
    )
    truth: dict[CheckpointId, View] = {}
    for n in manifests:
        options = replace(lab.options, restore_id=n)
        found = recover_and_look(_job(lab).plan, options, lab.disk.copy())
        assert found.checkpoint_id == n
        truth[n] = found.view
    return replace(lab, truth=truth)


def _run_until_killed(simulation: Simulation, **options: object) -> None:
    try:
        simulation.run(**options)
    except ProcessKilledError:
        return
    raise AssertionError("the job ended before its driver was killed")


def _retain(store: CheckpointStore, clock: Clock) -> None:
    """Pin the oldest checkpoint, and delete most of the others."""
    oldest, now_ms = store.manifests.ids()[0], clock.now_ms()
    Pins(store).pin(
        PinRecord(checkpoint_id=oldest, name="kept", actor="test", reason="", created_at_ms=now_ms)
    )
    retention = Retention(store, RetentionPolicy(keep_last=KEPT), clock.now_ms, readers=1)
    result = retention.apply(retention.plan(), Actor("test"), {})
    assert result is not None
    assert result.deleted_checkpoints > 0


def _objects_of(store: CheckpointStore, manifest: CheckpointManifest) -> frozenset[str]:
    files = {store.paths.absolute(file.path) for file in manifest.files()}
    return frozenset({*files, store.paths.manifest(manifest.checkpoint_id)})


# --- one corruption -------------------------------------------------------------------------------


def try_corruptions(seeds: range, finish_every: int = 0) -> Iterator[Verdict]:
    """Yield one verdict per seed; some of the jobs are also run to their end."""
    labs: dict[str, Lab] = {}
    for seed in seeds:
        name = list(JOBS)[seed % len(JOBS)]
        lab = labs[name] = labs.get(name) or make_lab(name)
        finish = finish_every > 0 and seed // len(JOBS) % finish_every == 0
        yield try_corruption(lab, seed, finish=finish)


def try_corruption(lab: Lab, seed: int, *, finish: bool = False) -> Verdict:
    """Corrupt a copy of the store, recover, compare; ``finish``: also run the job to its end."""
    disk = lab.disk.copy()
    dice = Random(f"corruption {seed}")  # noqa: S311 - a simulation, not a secret
    newest = max(lab.objects.items(), default=(0, frozenset[str]()))[1]
    corruption = corrupt(disk, dice, newest)
    whole = [n for n, keys in lab.objects.items() if _is_whole(lab, disk, keys)]
    expected_id = max(whole, default=None)
    verdict = Verdict(seed, lab.name, corruption, "violation", expected_id)
    try:
        outcome = _recovered(lab, disk.copy(), expected_id)
        if finish:
            _finish(lab, disk, fresh=expected_id is None)
    except _WrongAnswerError as error:
        return replace(verdict, problem=str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return replace(verdict, problem=f"{type(error).__name__} at {where}: {error}")
    return replace(verdict, outcome=outcome)


def _is_whole(lab: Lab, disk: SimulatedDisk, keys: frozenset[str]) -> bool:
    """Whether all of these are as they were written."""
    if keys & disk.special.keys():
        return False
    return all(disk.get(key) == lab.disk.get(key) for key in keys)


def _recovered(lab: Lab, disk: SimulatedDisk, expected_id: CheckpointId | None) -> Outcome:
    try:
        found = recover_and_look(_job(lab).plan, lab.options, disk)
    except LaminarError as error:
        if expected_id is None and error.code is ErrorCode.NO_RESTORABLE_CHECKPOINT:
            return "refused"
        raise _WrongAnswerError(f"refused, with {expected_id} whole: {error}") from error
    if expected_id is None or found.checkpoint_id != expected_id:
        raise _WrongAnswerError(f"restored {found.checkpoint_id}, the newest is {expected_id}")
    if found.view != lab.truth[expected_id]:
        raise _WrongAnswerError(_differences(found.view, lab.truth[expected_id]))
    if unsaid := _passed_over(lab, disk, expected_id) - found.rejected:
        raise _WrongAnswerError(f"{sorted(unsaid)} passed over without a word")
    return "harmless" if expected_id == max(lab.truth) else "recovered"


class _WrongAnswerError(Exception):
    """A violation."""


def _passed_over(lab: Lab, disk: SimulatedDisk, restored_id: CheckpointId) -> set[int]:
    """Newer ones that can be known to have been complete: by a manifest, or by their commit."""
    paths = JobPaths(JOB)
    return {
        n
        for n in lab.truth
        if n > restored_id
        and (disk.size(paths.manifest(n)) is not None or disk.size(paths.commit(n)) is not None)
    }


def _differences(found: View, truth: View) -> str:
    places = sorted(p for p in {*found, *truth} if found.get(p) != truth.get(p))
    return f"restored other state of {', '.join(places)}"


def _finish(lab: Lab, disk: SimulatedDisk, *, fresh: bool) -> None:
    job = _job(lab)
    simulation = Simulation(
        job.plan,
        parallelism=PARALLELISM,
        checkpoint=lab.options.checkpoint,
        objects=disk,
        first_driver=lab.drivers + 1,
    )
    simulation.run(allow_fresh=fresh, take_over=True)
    for problem in job.problems():
        raise _WrongAnswerError(f"run to its end: {problem}")


def _job(lab: Lab) -> Job:
    job = lab.build(PARALLELISM)
    job.load(lab.ledgers)
    return job
