"""A stage is submitted once its slots are there, and not at all when it was given up before."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.host.clock import ManualClock
from laminar_core.spark import stage
from laminar_core.spark.conditions import SparkFacts
from laminar_core.spark.slot_wait import SlotWait
from laminar_core.spark.stage import SparkCluster, SparkStage


def counting(*slots: int | None) -> tuple[list[int | None], Callable[[], int | None]]:
    """Return the answers that were given, and what gives them one after the other."""
    given: list[int | None] = []
    left = list(slots)

    def answer() -> int | None:
        given.append(left.pop(0))
        return given[-1]

    return given, answer


def test_a_stage_waits_until_all_its_slots_are_there() -> None:
    given, slots = counting(0, 1, 2)
    assert SlotWait(slots, 2, look_every_s=0).wait()
    assert given == [0, 1, 2]


@pytest.mark.parametrize("known", [None, 2, 3])
def test_a_stage_with_slots_or_without_an_answer_does_not_wait(known: int | None) -> None:
    given, slots = counting(known)
    assert SlotWait(slots, 2, look_every_s=600).wait()
    assert given == [known]


def test_a_wait_can_be_cancelled_before_it_begins() -> None:
    given, slots = counting()
    wait = SlotWait(slots, 2)
    wait.cancel()
    assert not wait.wait()
    assert given == []


def test_a_wait_can_be_cancelled_at_any_time() -> None:
    wait: SlotWait

    def cancel() -> int:
        wait.cancel()
        return 0

    wait = SlotWait(cancel, 2, look_every_s=600)
    assert not wait.wait()


def test_a_stage_that_is_given_up_without_slots_is_never_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark would start it as soon as it had slots, which then another generation needs."""
    submitted: list[str] = []
    context = SimpleNamespace(addJobTag=submitted.append, cancelJobsWithTag=lambda _: None)
    spark = SimpleNamespace(sparkContext=context)
    monkeypatch.setattr(stage, "slots_of", lambda _: 1)
    deployment = SimpleNamespace(job="j", generation=7, parallelism=2)
    made = SparkStage(spark, deployment)
    made.interrupt()
    with pytest.raises(JobFailedError) as given_up:
        made.ended.result(60)
    assert given_up.value.code is ErrorCode.NOT_ENOUGH_SLOTS
    assert submitted == []


def test_a_wait_remembers_what_it_saw() -> None:
    _, slots = counting(1, 0, 2)
    wait = SlotWait(slots, 2, look_every_s=0)
    assert (wait.newest, wait.most) == (None, 0)
    wait.wait()
    assert (wait.newest, wait.most) == (2, 2)
    _, slots = counting(None)
    wait = SlotWait(slots, 2)
    wait.wait()
    assert (wait.newest, wait.most) == (None, 0)


class Renewable:
    """A session that counts how often it was renewed."""

    can_be_renewed = True

    def __init__(self) -> None:
        self.spark = object()
        self.renewed = 0

    def renew(self) -> None:
        self.spark = object()
        self.renewed += 1

    def live(self):
        return self.spark


def starts(monkeypatch: pytest.MonkeyPatch, master: str, *seen: tuple[int | None, ...]) -> int:
    """Start a coordinator before each of the stages, which saw so many slots; count renewals."""
    read_of: list[object] = []

    def facts_of(spark: object) -> SparkFacts:
        read_of.append(spark)
        return SparkFacts(master, {"spark.driver.host": "127.0.0.1"})

    monkeypatch.setattr(stage, "facts_of", facts_of)
    monkeypatch.setattr(stage, "CoordinatorTransport", lambda *_: None)
    monkeypatch.setattr(stage, "CoordinatorThread", lambda *_: None)
    session = Renewable()
    cluster = SparkCluster(session, "auto", ManualClock())
    parts = SimpleNamespace(identity=SimpleNamespace(parallelism=2))
    for slots in [*seen, ()]:
        cluster.start_coordinator(parts, lambda _: None)
        made = SlotWait(lambda: None, 2)
        made.newest = slots[-1] if slots else None
        made.most = max((n for n in slots if n), default=0)
        cluster._newest_stage = SimpleNamespace(slots=made)
    assert len(read_of) == 1 + session.renewed  # Once for each session.
    assert read_of[-1] is session.spark
    return session.renewed


@pytest.mark.parametrize(
    ("seen", "renewals"),
    [
        ([(2,), (0,)], 1),
        ([(0, 2), (1, 0), (2,)], 1),
        ([(0,), (0,)], 0),  # It never had any: the cluster is busy, and it keeps its place.
        ([(2,), (1,)], 1),  # One executor is left: its worker has not registered again.
        ([(1,), (1,)], 0),
        ([(2,), (None,)], 0),
        ([(2,), (0,), (0,)], 1),  # The next application has had none yet.
        ([(2,), (0,), (2,), (0,)], 2),
    ],
)
def test_an_application_that_lost_its_slots_is_registered_anew(
    monkeypatch: pytest.MonkeyPatch, seen: list[tuple[int | None, ...]], renewals: int
) -> None:
    """A master that was started again may not know it, and Spark does not notice that."""
    assert starts(monkeypatch, "spark://m:7077", *seen) == renewals


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://k:443"])
def test_other_clusters_replace_executors_themselves(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    assert starts(monkeypatch, master, (2,), (0,), (0,)) == 0


@pytest.mark.parametrize(("forgotten", "renewals"), [(True, 2), (False, 0)])
def test_an_application_that_the_master_does_not_know_is_registered_anew_at_once(
    monkeypatch: pytest.MonkeyPatch, *, forgotten: bool, renewals: int
) -> None:
    """No start waits for slots that cannot come; the first one has nothing to lose."""
    asked: list[str] = []
    monkeypatch.setattr(stage, "has_forgotten", lambda _, own: not asked.append(own) and forgotten)
    monkeypatch.setattr(SparkCluster, "_application_id", lambda _: "app-7")
    assert starts(monkeypatch, "spark://m:7077", (2,), (2,)) == renewals
    assert asked == ["app-7"] * 2
