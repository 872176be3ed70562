"""A driver's act on its job is in the audit log before it takes effect."""

import pytest

from laminar_core.driver.events import CheckpointCompleted, WorkersRunning
from laminar_core.driver.restart import FixedDelay
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.records.actor import Actor
from laminar_core.records.audit import AuditRecord
from laminar_core.store.audit_anchors import read_anchors
from laminar_core.store.audit_log import CODE_VERSION, AuditLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.jobs import Job
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation

EVE = Actor("eve")


def simulate(**options) -> tuple[Job, Simulation]:
    job = windows_job(2)
    return job, Simulation(job.plan, **options)


def log_of(simulation: Simulation) -> AuditLog:
    return AuditLog(simulation.objects, simulation.store.paths, lambda: 0)


def acts(simulation: Simulation) -> list[tuple]:
    """(action, what it says of the generation, outcome) of each record of a log that is whole."""
    log = log_of(simulation)
    assert log.verify().findings == ()
    return [
        (record.action, (record.after or {}).get("generation"), record.outcome)
        for record in log.records()
    ]


def by_action(simulation: Simulation, action: str) -> list[AuditRecord]:
    return [record for record in log_of(simulation).records() if record.action == action]


def test_a_job_that_runs_once_is_claimed_started_and_ended():
    _, simulation = simulate()
    simulation.run(actor=Actor("ann", reason="first try"))
    assert acts(simulation) == [
        ("claim", 1, "intended"),
        ("start-fresh", 1, "intended"),
        ("end", 1, "intended"),
    ]
    claimed, started, ended = log_of(simulation).records()
    assert {record.actor for record in (claimed, started, ended)} == {"ann"}
    assert (claimed.reason, claimed.before) == ("first try", {"generation": None})
    assert claimed.code_version == CODE_VERSION
    facts = {"generation": 1, "checkpoint_id": None, "asked_for": None, "parallelism": 2}
    assert facts.items() <= (started.after or {}).items()
    assert (started.after or {})["allow_fresh"] is False
    assert (ended.after or {})["outcome"] == "finished"


def test_a_restart_says_after_what_and_from_which_checkpoint():
    _, simulation = simulate()
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0))
    simulation.run(actor=Actor("ann", run_id="run-7"))
    assert [act[:2] for act in acts(simulation)] == [
        ("claim", 1),
        ("start-fresh", 1),
        ("end", 1),
        ("claim", 2),
        ("restore", 2),
        ("end", 2),
    ]
    assert {record.run_id for record in log_of(simulation).records()} == {"run-7"}
    (restored,) = by_action(simulation, "restore")
    assert (restored.reason, (restored.after or {})["checkpoint_id"]) == (
        "restarted after a failure",
        1,
    )
    failed, _ = by_action(simulation, "end")
    assert (failed.after or {})["outcome"] == "failed"
    assert failed.reason


def test_claims_name_what_announced_them():
    _, simulation = simulate()
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0))
    simulation.run()
    claims = [summary.claim for summary in simulation.store.generations.summaries()]
    announced = [record.reference() for record in by_action(simulation, "claim")]
    assert [claim.announced for claim in claims if claim is not None] == announced
    for key in simulation.objects.list(simulation.store.paths.audit):
        simulation.objects.delete(key)
    found = [finding.problem for finding in log_of(simulation).verify().findings]
    assert found == ["records 1 to 6 are cut off: the end of generation 2 names record 6"]


def test_whatever_a_job_writes_names_the_newest_record_of_its_audit_log():
    _, simulation = simulate()
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0))
    simulation.run()
    store = simulation.store
    found = read_anchors(store.objects, store.paths).found
    numbers = {anchor.holder: anchor.ref.number for anchor in found}
    for generation, first in ((1, 1), (2, 4)):
        assert numbers[f"the claim of generation {generation}"] == first
        assert numbers[f"the base of generation {generation}"] == first + 1
        assert numbers[f"the heartbeat of generation {generation}"] == first + 1
        assert numbers[f"the end of generation {generation}"] == first + 2
    for checkpoint_id in store.manifests.ids():
        generation = store.manifests.read(checkpoint_id).generation
        of = numbers[f"the manifest of checkpoint {checkpoint_id}"]
        assert of == numbers[f"the base of generation {generation}"]


def test_what_a_user_asks_for_is_written_down():
    _, simulation = simulate()
    simulation.when(CheckpointCompleted, simulation.stop, number=3)
    simulation.run()
    simulation.when(CheckpointCompleted, lambda: None)
    simulation.run(
        take_over=True, restore_id=2, actor=Actor("bob", reason="the new rule was wrong")
    )
    (taken,) = by_action(simulation, "take-over")
    (restored,) = by_action(simulation, "restore")
    assert (taken.before, taken.after) == ({"generation": 1}, {"generation": 2})
    assert (taken.actor, taken.reason) == ("bob", "the new rule was wrong")
    assert (restored.reason, (restored.after or {})["asked_for"]) == ("the new rule was wrong", 2)


def test_a_refusal_is_an_end_and_says_why():
    _, simulation = simulate()
    simulation.run()
    with pytest.raises(ConfigurationError):
        simulation.run(restore_id=77)
    refused = by_action(simulation, "end")[-1]
    assert (refused.after or {})["outcome"] == "refused"
    assert "77" in refused.reason


def test_a_job_that_is_owned_is_left_alone_and_so_is_its_log():
    _, simulation = simulate()
    refused = []

    def second() -> None:
        with pytest.raises(ConfigurationError, match="which is alive"):
            simulation.run(actor=EVE)
        simulation.supervisors.pop()
        refused.append(True)

    simulation.when(WorkersRunning, second)
    simulation.run()
    assert refused
    assert {record.actor for record in log_of(simulation).records()} == {"laminar"}


def test_a_driver_that_expects_another_generation_leaves_everything_alone():
    _, simulation = simulate()
    simulation.run(expected_generation=0)
    before = {key: simulation.objects.get(key) for key in simulation.objects.list("")}
    with pytest.raises(ConfigurationError) as caught:
        simulation.run(expected_generation=0, take_over=True)
    assert caught.value.code is ErrorCode.UNEXPECTED_GENERATION
    assert {key: simulation.objects.get(key) for key in simulation.objects.list("")} == before
    simulation.run(expected_generation=1)
    assert [act[:2] for act in acts(simulation)][-3:] == [("claim", 2), ("restore", 2), ("end", 2)]


@pytest.mark.parametrize(
    ("expected", "said"), [(None, "at the same moment"), (0, "generation is 1, not none as expec")]
)
def test_of_two_that_claim_at_once_the_loser_says_so(expected, said):
    _, simulation = simulate()
    _, winner = simulate(objects=simulation.objects, first_driver=2)

    def observe(call: StoreCall) -> None:
        if call.key.endswith("generations/0000000001.json") and call.moment == "before":
            simulation.observers.clear()
            winner.run()

    simulation.observers.append(observe)
    with pytest.raises(ConfigurationError, match=said):
        simulation.run(actor=EVE, expected_generation=expected)
    assert acts(simulation) == [
        ("claim", 1, "intended"),
        ("claim", 1, "intended"),
        ("start-fresh", 1, "intended"),
        ("end", 1, "intended"),
        ("claim", None, "failed"),
    ]
    eve, failed = log_of(simulation).read(1), log_of(simulation).read(5)
    assert eve is not None
    assert failed is not None
    assert (eve.actor, failed.actor, failed.intent) == ("eve", "eve", 1)
    assert said in failed.reason


def test_what_cannot_be_audited_does_not_happen():
    faults = Fault("put_if_absent", Effect.FAIL, key="audit/", last=99)
    _, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), faults))
    with pytest.raises(StorageUnavailable):
        simulation.run()
    assert simulation.store.claims.newest() is None


def test_a_start_that_cannot_be_audited_is_tried_again():
    faults = Fault("put_if_absent", Effect.FAIL, key="audit/0000000002", last=6)
    job, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), faults))
    result = simulation.run(restart=FixedDelay(attempts=5, pause_ms=10))
    assert result.outcome == "finished"
    job.check()
    bases = [summary.base for summary in simulation.store.generations.summaries()]
    assert bases[0] is None or bases[0].closed_by is not None
    assert acts(simulation)[-1][2] == "intended"


@pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.DENY])
def test_a_claim_whose_record_was_not_answered_has_one_record(effect):
    """Twice in a row, so the driver waits and tries the same act again."""
    fault = Fault("put_if_absent", effect, key="audit/0000000004", last=2)
    job, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), fault))
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0))
    simulation.run()
    job.check()
    assert acts(simulation).count(("claim", 2, "intended")) == 1
    assert len(acts(simulation)) == 6
