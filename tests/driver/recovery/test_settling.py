"""Output is settled before a generation begins, and by the owner of the job alone."""

from collections.abc import Mapping

import pyarrow as pa
import pytest

from laminar_core.driver.publication import LeftOut
from laminar_core.driver.recovery.settling import OutputToSettle
from laminar_core.errors import ErrorCode, FencedError, StorageUnavailable
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.ledger import Ledger, LedgerCommitter
from tests.records.manifests import manifest, subtask
from tests.store.stores import claim, open_job

PART = {"name": "1-0-2"}
RESTORED = manifest(
    checkpoint_id=2,
    parent_checkpoint_id=None,
    subtasks=(
        subtask("window", 0),
        subtask("window", 1),
        subtask("sink", 0, committables=(PART,)),
        subtask("sink", 1),
    ),
)


def sinks(*operator_ids: str) -> dict[str, Ledger]:
    """Sinks with output of three checkpoints: visible, pre-committed, visible too early."""
    rows = [pa.RecordBatch.from_pylist([{"n": 1}])]
    return {
        operator_id: Ledger(
            staged={"1-0-2": rows, "1-0-4": rows},
            visible={"1-0-1": rows, "1-0-3": rows},
            commits={1: ["1-0-1"], 3: ["1-0-3"]},
            intervals={f"1-0-{number}": number for number in (1, 2, 3, 4)},
        )
        for operator_id in operator_ids
    }


def settle(
    output: OutputToSettle, ledgers: Mapping[str, Ledger], store: CheckpointStore | None = None
) -> None:
    if store is None:
        store = open_job()
        claim(store)
        claim(store)
    committers = {name: LedgerCommitter(ledger) for name, ledger in ledgers.items()}
    output.settle(store, committers, Generation(2))


def test_output_up_to_the_checkpoint_is_visible_and_no_other() -> None:
    ledgers = sinks("sink")
    settle(OutputToSettle(CheckpointId(2), (RESTORED,)), ledgers)
    settle(OutputToSettle(CheckpointId(2), (RESTORED,)), ledgers)  # Repeating it is harmless.
    assert ledgers["sink"].commits == {1: ["1-0-1"], 2: ["1-0-2"]}
    assert sorted(ledgers["sink"].visible) == ["1-0-1", "1-0-2"]
    assert not ledgers["sink"].staged


def test_a_fresh_start_and_a_sink_that_begins_anew_have_none() -> None:
    ledgers = sinks("sink", "anew")
    left_out = LeftOut({"sink": [PART]})
    settle(OutputToSettle(CheckpointId(2), (RESTORED,), left_out, ("anew",)), ledgers)
    assert ledgers["sink"].commits == {1: ["1-0-1"]}
    assert not ledgers["anew"].visible
    settle(OutputToSettle(), ledgers)
    assert not ledgers["sink"].visible


@pytest.mark.parametrize("restored", [(), (RESTORED,)])
def test_who_has_a_successor_withdraws_and_commits_nothing(restored) -> None:
    store, ledgers = open_job(), sinks("sink")
    for _ in range(3):
        claim(store)
    with pytest.raises(FencedError):
        settle(OutputToSettle(NO_CHECKPOINT, restored), ledgers, store)
    assert sorted(ledgers["sink"].visible) == ["1-0-1", "1-0-3"]


@pytest.mark.parametrize("step", ["discard_uncommitted", "withdraw_after"])
def test_the_owner_tries_again_if_a_sleeper_took_a_sink_over(step: str) -> None:
    """Only the store decides who owns the job; else nobody would run it."""
    store, ledgers = open_job(), sinks("sink")
    for _ in range(2):
        claim(store)

    def observe(verb: str, moment: str) -> None:
        if (verb, moment) == (step, "before"):
            raise FencedError(ErrorCode.FENCED, "the target knows a newer producer")

    ledgers["sink"].observe = observe
    with pytest.raises(StorageUnavailable, match="sink sink was taken over by another driver"):
        settle(OutputToSettle(CheckpointId(2), (RESTORED,)), ledgers, store)
    claim(store)
    with pytest.raises(FencedError, match="generation 3"):
        settle(OutputToSettle(CheckpointId(2)), ledgers, store)
