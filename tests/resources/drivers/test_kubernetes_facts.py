"""Facts decide: whether a Job makes room, and whether a driver has come up."""

from dataclasses import replace

import pytest

from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.resources.drivers.kubernetes_facts import (
    GaveUp,
    JobFacts,
    PodFacts,
    StartFacts,
    Starting,
    Up,
    decide_existing,
    earlier_jobs,
    look,
)
from laminar_core.store.generation_summary import read_generation
from tests.store.stores import claimant, elsewhere, never, open_job

JOB = JobFacts("driver-3", "uid", managed=True, follows=2, digest="d")
RUNNING, PENDING = PodFacts("p", "Running"), PodFacts("p", "Pending")


@pytest.mark.parametrize(
    ("found", "pod", "decision"),
    [
        (JOB, RUNNING, "adopt"),
        (JOB, PENDING, "adopt"),
        (replace(JOB, digest="other"), RUNNING, "refuse"),
        (replace(JOB, digest="other"), PENDING, "replace"),
        (replace(JOB, state="failed"), RUNNING, "replace"),
        (replace(JOB, state="complete"), RUNNING, "replace"),
        (replace(JOB, deleting=True, state="failed"), RUNNING, "wait"),
        (replace(JOB, managed=False), RUNNING, "foreign"),
    ],
)
def test_a_job_in_the_way_is_ended_only_if_it_did_nothing(found, pod, decision) -> None:
    assert decide_existing(found, [pod], "d") == decision


def test_only_jobs_of_earlier_generations_that_still_run_are_ended() -> None:
    old = replace(JOB, name="driver-2", follows=1)
    others = [
        replace(old, state="failed"),
        replace(old, deleting=True),
        replace(old, managed=False),
        replace(old, follows=None),
    ]
    assert earlier_jobs([*others, old, JOB, replace(JOB, follows=3)], follows=2) == [old]


def generation(host: str, progress: dict[str, int] | None = None):
    store = open_job()
    store.objects.create()
    owner = elsewhere().model_copy(update={"host_id": f"{host}/1"})
    number = store.claims.claim(claimant(owner), wait_ms=never)
    if progress is not None:
        store.generations.beat(number, Heartbeat(sequence=1, at_ms=7, progress=progress))
    return read_generation(store.objects, store.paths, Generation(number))


def test_workers_run_when_each_has_reported() -> None:
    facts = StartFacts("driver-3", generation("driver-3", {}), JOB, [RUNNING])
    assert isinstance(look(facts), Starting)
    up = look(replace(facts, generation=generation("driver-3", {"rows_in": 0})))
    assert isinstance(up, Up)
    assert list(up.events) == ["generation-started", "workers-running"]


def test_a_generation_of_another_host_is_not_its_own() -> None:
    facts = StartFacts("driver-3", generation("driver-30", {"rows_in": 1}), JOB, [RUNNING])
    assert look(facts) == Starting(RUNNING)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (StartFacts("driver-3", None, None), GaveUp(None, "Deleted", "somebody deleted its Job")),
        (StartFacts("driver-3", None, None, is_seen=False), Starting(None)),
        (StartFacts("driver-3", None, replace(JOB, state="failed")), GaveUp(None, "failed", "")),
        (
            StartFacts("driver-3", None, JOB, [replace(RUNNING, exit_code=0, reason="Completed")]),
            GaveUp(0, "Completed", ""),
        ),
        (
            StartFacts(
                "driver-3", None, replace(JOB, state="failed"), [replace(RUNNING, reason="Evicted")]
            ),
            GaveUp(None, "Evicted", ""),
        ),
    ],
)
def test_the_end_of_its_pod_is_the_end_of_a_start(facts, state) -> None:
    assert look(facts) == state
