"""Joins in the simulator: exact whatever dies, with rows in flight on both inputs, and bounded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.stored_columns import column_mismatches
from laminar_core.operators.joins.pairing import PairJoiner
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.chunks import Chunk
from laminar_core.state.kept_rows import Room
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import SECOND_US, BuildJob, Job
from laminar_core.testing.join_jobs import JOIN_JOBS, LATE_JOIN_JOBS
from laminar_core.testing.pairing_jobs import EQUAL_WINDOWS_JOBS, PAIRING_JOBS
from laminar_core.testing.session_jobs import sessions_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.driver.drill.test_drill import drill

UNALIGNED = CoordinatorConfig(interval_ms=5, alignment_timeout_ms=0)
SEEDS = range(4)
ALL_JOBS = {**JOIN_JOBS, **PAIRING_JOBS, **EQUAL_WINDOWS_JOBS}
SAMPLED = [
    *JOIN_JOBS,
    *(pytest.param(n, marks=pytest.mark.sampled(3)) for n in ALL_JOBS if n not in JOIN_JOBS),
]


def seeds_of(name: str) -> Sequence[int]:
    """Return the seeds of a job; there are many pairing jobs, and the campaign runs them, too.

    Rows of windows come rarely, so only some seeds have any in flight at their first checkpoint.
    """
    if name in EQUAL_WINDOWS_JOBS:
        return (85, 108)
    return SEEDS if name in JOIN_JOBS else range(3)


@pytest.mark.parametrize("name", ALL_JOBS)
def test_an_undisturbed_run_is_exact(name: str) -> None:
    for parallelism in (1, 3):
        job = ALL_JOBS[name](parallelism)
        result = Simulation(job.plan, parallelism=parallelism).run()
        job.check(result.rows_late)
        assert result.rows_late == 0
        assert all(len(rows) > 20 for rows in job.expected.values())


def test_every_kind_of_result_is_in_the_jobs() -> None:
    rows = JOIN_JOBS["full-join"](1).expected["out"]
    kinds = Counter((row["id"] is None, row["refund"] is None) for row in rows)
    assert all(kinds[kind] > 5 for kind in ((False, False), (True, False), (False, True)))
    rows = JOIN_JOBS["as-of-join"](1).expected["out"]
    assert 5 < sum(row["refund"] is None for row in rows) < len(rows) - 20


def killed(name: str, seed: int) -> tuple[Job, Simulation]:
    """A job whose driver dies after its first unaligned checkpoint."""
    job = ALL_JOBS[name](3)
    simulation = Simulation(job.plan, parallelism=3, seed=seed, checkpoint=UNALIGNED)
    job.burden.row_ms, job.burden.spend = 2.0, simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ALL_JOBS)
def test_rows_in_flight_on_both_inputs_come_back(name: str) -> None:
    """By a kill after an unaligned checkpoint, and with another number of workers."""
    inputs: Counter[int] = Counter()
    for seed in seeds_of(name):
        job, simulation = killed(name, seed)
        newest = simulation.store.manifests.read(simulation.store.manifests.ids()[-1])
        assert list(column_mismatches(newest, job.plan, simulation.store)) == []
        for entry in newest.inflight_data:
            if entry.edge.downstream == "join":
                inputs[entry.edge.input_index] += entry.row_count
        simulation.options = replace(simulation.options, parallelism=2 + seed % 3)
        result = simulation.run(take_over=True)
        job.check(result.rows_late)
        assert result.rows_late == 0
    assert inputs[0], inputs
    assert inputs[1], inputs


@pytest.mark.parametrize("name", SAMPLED)
def test_a_drill_proves_every_table(name: str) -> None:
    _, simulation = killed(name, seeds_of(name)[0])
    record, _ = drill(simulation)
    assert (record.outcome, record.problems) == ("passed", ())
    (join,) = [operator for operator in record.operators if operator.operator_id == "join"]
    assert join.is_equal
    assert join.rows_restored > 0


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAMPLED)
def test_crashes_and_other_numbers_of_workers_change_nothing(name: str) -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in seeds_of(name)]
    reports = [simulate_setting(setting, ALL_JOBS[name]) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports) / 2


@pytest.mark.parametrize("job", [JOIN_JOBS["full-join"], sessions_job], ids=["join", "sessions"])
def test_rows_in_rocksdb_come_back_with_other_numbers_of_workers(
    job: BuildJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, blocks = Room.put, 0

    def counted(room: Room, *args: Any) -> list[Chunk]:
        nonlocal blocks
        found = put(room, *args)
        blocks += len(found)
        return found

    monkeypatch.setattr(Room, "put", counted)
    drawn = draw(1, losses=())
    state = replace(drawn.state, backend="rocksdb", memory_bytes=400)
    disasters = ("rescale", "worker-crash", "rescale")
    report = simulate_setting(replace(drawn, state=state, disasters=disasters), job)
    assert report.violations == ()
    assert blocks > 10


def test_a_row_that_leaves_before_its_time_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_new(progress: JoinProgress) -> int:
        return min((progress.watermark_us or 0) + 7 * SECOND_US, WATERMARK_END_US - 1)

    monkeypatch.setattr(JoinProgress, "passed_us", property(too_new))
    problems: list[str] = []
    for seed in SEEDS:
        job = JOIN_JOBS["full-join"](2)
        result = Simulation(job.plan, parallelism=2, seed=seed).run()
        problems += job.problems(result.rows_late)
    assert problems


@pytest.mark.large
def test_a_watermark_that_is_not_held_back_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PairJoiner, "output_watermark", lambda _self, watermark_us: watermark_us)
    late = 0
    for seed in range(12):
        job = JOIN_JOBS["interval-join"](2)
        late += Simulation(job.plan, parallelism=2, seed=seed).run().rows_late
    assert late


def test_an_expired_row_that_is_probed_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are dropped some time after they have expired; until then only bounds keep them out."""
    probe = Arrangement.probe
    monkeypatch.setattr(
        Arrangement, "probe", lambda self, probing, keys, _=None: probe(self, probing, keys)
    )
    job = JOIN_JOBS["interval-join"](2)
    result = Simulation(job.plan, parallelism=2, seed=1).run()
    assert list(job.problems(result.rows_late))


@pytest.mark.large
def test_late_rows_of_both_sides_are_kept_and_the_others_joined() -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    ((name, build),) = LATE_JOIN_JOBS.items()
    for seed in SEEDS:
        drawn = replace(draw(seed, losses=()), disasters=disasters, scenario=name)
        report = simulate_setting(drawn, build)
        assert report.violations == ()
    job = build(2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert all(job.ledgers[side].rows() for side in ("late_left", "late_right"))
