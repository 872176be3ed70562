"""When the mode changes: a table of situations, and loads that must not make it flap."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.records.actor import ActorKind
from laminar_core.sensors.alignment.decision import (
    AlignmentFacts,
    Change,
    ModeInForce,
    ModeRun,
    Sample,
    Stay,
    UnderWay,
    decide_alignment,
    find_emergency,
)
from laminar_core.sensors.policy import AlertPolicy
from tests.sampling import drawn

POLICY = AlertPolicy(
    alignment_window=10, alignment_samples_min=3, calm_checkpoints=4, cooldown="1 minute"
)
BY_SENSOR = "sensor payments_alignment"
FORCED = ModeInForce("unaligned", 7, BY_SENSOR, age_ms=3_600_000, actor_kind=ActorKind.SENSOR)


def aligned(*times_ms: float) -> tuple[Sample, ...]:
    return tuple(Sample(number, ms) for number, ms in enumerate(times_ms, 1))


def overtook(*rows: int | None) -> tuple[Sample, ...]:
    return tuple(Sample(number, 1.0, count) for number, count in enumerate(rows, 1))


def facts(**known: object) -> AlignmentFacts:
    return replace(AlignmentFacts(generation=3, rows_per_s=1_000.0), **known)


def wanted(known: AlignmentFacts, policy: AlertPolicy = POLICY) -> str | None:
    decision = decide_alignment(known, policy)
    return decision.mode if isinstance(decision, Change) else None


@pytest.mark.parametrize(
    ("times_ms", "mode"),
    [
        ((), None),
        ((5_000, 5_000), None),  # Two say nothing of the p99 ...
        ((5_000, 40_000), "unaligned"),  # ... but this one does not need it.
        ((10, 10, 1_001), "unaligned"),
        ((1_000, 1_000, 1_000), None),
        ((10,) * 9 + (2_000,), "unaligned"),
        ((2_000,) + (10,) * 10, None),  # Out of the window.
    ],
)
def test_alignment_times_that_force_it(times_ms: tuple[float, ...], mode: str | None) -> None:
    assert wanted(facts(samples=aligned(*times_ms)[-10:])) == mode


@pytest.mark.parametrize(
    ("rows", "rows_per_s", "mode"),
    [
        ((0, 0, 0, 0), 0.0, "default"),  # Nothing comes, and nothing waits.
        ((0, 0, 0, 0), None, "default"),
        ((200, 200, 200, 200), 1_000.0, "default"),
        ((201, 200, 200, 200), 1_000.0, None),
        ((0, 0, 0, 201), 1_000.0, None),
        ((900, 0, 0, 0, 0), 1_000.0, "default"),  # Four in a row, after one that was not.
        ((0, 0, 0), 1_000.0, None),
        ((5, 5, 5, 5), 0.0, None),  # Rows wait, and nobody works.
        ((5, 5, 5, 5), None, None),
        ((0, None, 0, None, 0, 0), 1_000.0, "default"),  # Deleted before it was read.
        ((None, None, None, None), 1_000.0, None),
    ],
)
def test_in_flight_rows_that_end_it(
    rows: tuple[int | None, ...], rows_per_s: float | None, mode: str | None
) -> None:
    assert wanted(facts(mode=FORCED, samples=overtook(*rows), rows_per_s=rows_per_s)) == mode


def test_one_that_failed_ends_the_calm() -> None:
    failed = Sample(5, None, None, completed=False)
    assert wanted(facts(mode=FORCED, samples=(*overtook(0, 0, 0, 0), failed))) is None


SLOW = aligned(9_000, 9_000, 9_000)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"not_running": "generation 3 stopped"}, "the job is not running: generation 3 stopped"),
        ({"mode": ModeInForce("aligned", 7, "ada", 1e9)}, "ada set the mode to aligned"),
        (
            {"mode": ModeInForce("5000", 7, "sensor person", 1e9)},
            "sensor person set the mode to 5000",
        ),
        ({"mode": ModeInForce("default", 7, "ada", 59_000)}, "the last change was 59 s ago"),
        ({"mode": ModeInForce(refused="it overlaps")}, "the driver refused: it overlaps"),
        ({"may_overtake": False}, "every edge of this pipeline must stay aligned"),
        ({"request": ModeRun("r1", in_progress=True, age_ms=1e9)}, "run r1 is changing it"),
        ({"request": ModeRun("r1", in_progress=False, age_ms=5_000)}, "last change was 5 s ago"),
    ],
)
def test_what_keeps_a_slow_job_from_being_flipped_is_said(
    known: dict[str, object], why: str
) -> None:
    decision = decide_alignment(facts(samples=SLOW, **known), POLICY)
    assert isinstance(decision, Stay)
    assert why in decision.reason


def test_a_person_who_set_the_default_lets_it_act_after_the_cooldown() -> None:
    mode = ModeInForce("default", 7, "ada", age_ms=60_000)
    assert wanted(facts(samples=SLOW, mode=mode)) == "unaligned"


def test_with_flip_off_it_stays_and_says_so() -> None:
    decision = decide_alignment(facts(samples=SLOW), POLICY.model_copy(update={"flip": False}))
    assert isinstance(decision, Stay)
    assert "p99 of the last 3 alignment times is 9000 ms, more than 1 second" in decision.reason
    assert "flip is off" in decision.reason


def test_an_emergency_is_found_once_per_mode() -> None:
    stuck = facts(samples=SLOW, under_way=UnderWay(4, 30_001))
    (found,) = find_emergency(stuck, POLICY)
    assert found.cause == "alignment:3:0"
    assert "checkpoint 4 has been under way for 30.0 s" in found.text
    assert find_emergency(facts(samples=SLOW), POLICY) == []
    assert find_emergency(replace(stuck, not_running="it stopped"), POLICY) == []


@dataclass
class Running:
    """A job under a load, and the sensor; ``queued_ms`` is how long rows wait in its queues."""

    rows_per_s: float = 1_000.0
    mode: ModeInForce = field(default_factory=ModeInForce)
    samples: list[Sample] = field(default_factory=list)
    now_ms: float = 0
    set_at_ms: float | None = None
    changes: list[tuple[float, str]] = field(default_factory=list)

    def checkpoint(self, queued_ms: float, interval_ms: float) -> None:
        self.now_ms += interval_ms
        number = len(self.changes) * 1_000 + len(self.samples) + 1
        if self.mode.mode == "unaligned":
            rows = round(queued_ms * self.rows_per_s / 1_000)
            self.samples.append(Sample(number, 1.0, rows))
        else:
            self.samples.append(Sample(number, queued_ms, 0))

    def tick(self) -> None:
        age_ms = None if self.set_at_ms is None else self.now_ms - self.set_at_ms
        window = tuple(self.samples[-POLICY.alignment_window :])
        known = facts(
            mode=replace(self.mode, age_ms=age_ms), samples=window, rows_per_s=self.rows_per_s
        )
        decision = decide_alignment(known, POLICY)
        if isinstance(decision, Change):
            self.changes.append((self.now_ms, decision.mode))
            self.mode = ModeInForce(
                decision.mode, len(self.changes), BY_SENSOR, actor_kind=ActorKind.SENSOR
            )
            self.samples, self.set_at_ms = [], self.now_ms


QUEUED_MS = st.floats(0, 60_000)
INTERVAL_MS = st.sampled_from([500, 5_000, 20_000])


@given(QUEUED_MS, INTERVAL_MS)
def test_a_load_that_stays_as_it_is_changes_the_mode_once_at_most(
    queued_ms: float, interval_ms: float
) -> None:
    job = Running()
    for _ in range(200):
        job.checkpoint(queued_ms, interval_ms)
        job.tick()
    assert [mode for _, mode in job.changes] == (["unaligned"] if queued_ms > 1_000 else [])


@given(st.lists(st.floats(201, 1_000), min_size=50, max_size=80), st.booleans())
def test_between_calm_and_act_nothing_changes(loads_ms: list[float], forced: bool) -> None:  # noqa: FBT001
    job = Running(mode=FORCED if forced else ModeInForce())
    for queued_ms in loads_ms:
        job.checkpoint(queued_ms, 20_000)
        job.tick()
    assert job.changes == []


@settings(max_examples=drawn(60))
@given(st.lists(st.tuples(QUEUED_MS, INTERVAL_MS), min_size=30, max_size=120))
def test_two_changes_are_never_closer_than_the_cooldown(loads: list[tuple[float, float]]) -> None:
    job = Running()
    for queued_ms, interval_ms in loads:
        job.checkpoint(queued_ms, interval_ms)
        job.tick()
    times = [at for at, _ in job.changes]
    assert all(later - earlier >= 60_000 for earlier, later in pairwise(times))
    assert all(a != b for (_, a), (_, b) in pairwise(job.changes))
