"""An act that was announced is done if what it creates is there, whoever reads the log."""

import pytest

from laminar_core.protocol.types import Generation
from laminar_core.records.actor import ActorKind
from laminar_core.records.audit import AuditRecord
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import GenerationBase, GenerationClaim, GenerationEnd
from laminar_core.store.audit_outcomes import generation_of, outcomes
from laminar_core.store.generation_summary import GenerationSummary
from laminar_core.store.owner import this_process
from tests.store.stores import JOB

SHA = "0" * 64


def record(number: int, action: str, **changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "job": JOB,
        "action": action,
        "actor": "ann",
        "actor_kind": ActorKind.PERSON,
        "reason": "a test",
        "after": {"generation": 3, "checkpoint_id": 7},
        "code_version": "laminar 0",
        "at_ms": 1,
        "writer": this_process(),
        "number": number,
        "previous_sha256": None if number == 1 else SHA,
    }
    return AuditRecord(**fields | changes)


def claim(announced: int | None) -> GenerationClaim:
    return GenerationClaim(
        job=JOB,
        generation=3,
        owner=this_process(),
        actor="ann",
        actor_kind=ActorKind.PERSON,
        reason="a test",
        code_version="laminar 0",
        claimed_at_ms=1,
        announced=None if announced is None else AuditRef(number=announced, sha256=SHA),
    )


def base(checkpoint_id: int | None, closed_by: int | None = None) -> GenerationBase:
    return GenerationBase(generation=3, base_checkpoint_id=checkpoint_id, closed_by=closed_by)


END = GenerationEnd(generation=3, outcome="stopped", reason="")


def summary(**known: object) -> GenerationSummary:
    nothing = {"claim": None, "base": None, "heartbeat": None, "end": None}
    return GenerationSummary(Generation(3), **nothing | known)


@pytest.mark.parametrize(
    ("action", "known", "result"),
    [
        ("claim", {}, "intended"),
        ("claim", {"claim": claim(1)}, "done"),
        ("take-over", {"claim": claim(1)}, "done"),
        ("claim", {"claim": claim(2)}, "failed"),
        ("claim", {"claim": claim(None)}, "intended"),
        ("restore", {"claim": claim(1)}, "intended"),
        ("restore", {"base": base(7)}, "done"),
        ("restore", {"base": base(6)}, "failed"),
        ("restore", {"base": base(None, closed_by=4)}, "failed"),
        ("end", {}, "intended"),
        ("end", {"end": END}, "done"),
        ("pin", {"claim": claim(1), "base": base(7), "end": END}, "intended"),
    ],
)
def test_what_was_created_says_what_became_of_it(action: str, known, result: str) -> None:
    assert outcomes([record(1, action)], {3: summary(**known)}) == {1: result}


def test_a_fresh_start_is_done_when_it_is_the_base() -> None:
    fresh = record(1, "start-fresh", after={"generation": 3, "checkpoint_id": None})
    assert outcomes([fresh], {3: summary(base=base(None))}) == {1: "done"}
    assert outcomes([fresh], {3: summary(base=base(None, closed_by=5))}) == {1: "failed"}


def test_a_later_record_concludes_an_earlier_one() -> None:
    records = [record(1, "pin"), record(2, "claim"), record(3, "pin", outcome="done", intent=1)]
    assert outcomes(records, {}) == {1: "done", 2: "intended", 3: "done"}
    refused = [record(1, "claim"), record(2, "claim", outcome="failed", intent=1)]
    assert outcomes(refused, {3: summary()}) == {1: "failed", 2: "failed"}


@pytest.mark.parametrize("after", [None, {}, {"generation": "3"}, {"generation": 0}])
def test_a_record_that_names_no_generation_is_left_as_it_is(after) -> None:
    assert generation_of(record(1, "claim", after=after)) is None
