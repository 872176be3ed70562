"""The fate of a transaction is decided for certain, or not at all."""

from dataclasses import replace

import pytest

from laminar_core.connectors.kafka.open_transactions import (
    Fate,
    OpenTransaction,
    TransactionalIds,
    fate_of,
    transactions_after,
)
from laminar_core.connectors.kafka.transactions import TransactionFacts, TransactionState
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, Generation

IDS = TransactionalIds("laminar.payments.out", "0123456789abcdef")
NAME = IDS.of(Generation(3), 1, 0)
OPEN = OpenTransaction(CheckpointId(7), 10, NAME, 5, 4)


def facts(state: TransactionState, producer_id: int = 5, epoch: int = 4) -> TransactionFacts:
    return TransactionFacts(state, producer_id, epoch, None)


@pytest.mark.parametrize(
    ("told", "with_marker", "without"),
    [
        (facts(TransactionState.ONGOING), Fate.OPEN, Fate.OPEN),
        (facts(TransactionState.COMMITTED), Fate.COMMITTED, Fate.COMMITTED),
        (facts(TransactionState.ABORTED), Fate.ABORTED, Fate.ABORTED),
        # The coordinator raises the epoch of what it aborts after its timeout.
        (facts(TransactionState.ABORTED, epoch=5), Fate.ABORTED, Fate.UNKNOWN),
        (facts(TransactionState.NONE, epoch=6), Fate.ABORTED, Fate.UNKNOWN),
        (facts(TransactionState.ONGOING, epoch=5), Fate.ABORTED, Fate.UNKNOWN),
        (facts(TransactionState.COMMITTED, producer_id=6, epoch=0), Fate.ABORTED, Fate.UNKNOWN),
        (None, Fate.UNKNOWN, Fate.UNKNOWN),
    ],
)
def test_the_fate_follows_from_producer_epoch_and_marker(told, with_marker, without):
    assert fate_of(OPEN, told, marker_known=True) is with_marker
    assert fate_of(OPEN, told, marker_known=False) is without


def test_a_committable_is_read_as_it_was_written():
    assert OpenTransaction.from_json(OPEN.to_json()) == OPEN
    known = replace(OPEN, expires_at_ms=1_700_000_900_000)
    assert OpenTransaction.from_json(known.to_json()).expires_at_ms == known.expires_at_ms


def test_a_committable_of_an_older_version_does_not_say_when_it_expires():
    assert "expires_at_ms" not in OPEN.to_json()
    assert OpenTransaction.from_json(OPEN.to_json()).expires_at_ms is None


def test_a_transaction_is_the_same_whether_or_not_its_expiry_is_known():
    known = replace(OPEN, expires_at_ms=1_700_000_900_000)
    assert transactions_after(CheckpointId(0), [OPEN.to_json(), known.to_json()]) == [OPEN]


@pytest.mark.parametrize(
    "damage",
    [{"epoch": "4"}, {"producer_id": None}, {"transactional_id": 3}, {"rows": True}],
)
def test_what_is_no_transaction_is_refused(damage):
    with pytest.raises(CorruptCheckpointError, match="this is no transaction"):
        OpenTransaction.from_json({**OPEN.to_json(), **damage})


def test_what_is_newer_than_the_marker_comes_once_and_in_order():
    later = OpenTransaction(CheckpointId(9), 1, IDS.of(Generation(3), 0, 1), 6, 0)
    given = [later.to_json(), OPEN.to_json(), later.to_json()]
    assert transactions_after(CheckpointId(0), given) == [OPEN, later]
    assert transactions_after(CheckpointId(7), given) == [later]


@pytest.mark.parametrize(
    ("name", "is_older"),
    [
        (IDS.of(Generation(2), 12, 3), True),
        (IDS.of(Generation(3), 0, 0), False),
        (IDS.of(Generation(10), 0, 0), False),
        ("laminar.payments.out", False),
        ("laminar.payments.out.fedcba9876543210.g1.s0.0", False),
        ("laminar.payments.out.x.0123456789abcdef.g1.s0.0", False),
        ("laminarXpayments.out.0123456789abcdef.g1.s0.0", False),
        (IDS.of(Generation(1), 0, 0) + ".more", False),
    ],
)
def test_only_ids_of_older_generations_of_this_sink_and_run_match(name, is_older):
    assert IDS.older_than(Generation(3))(name) is is_older
