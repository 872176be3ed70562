"""Who pins what, and takes it away, is in the audit log, also if it fails."""

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pinning import pin_checkpoint, unpin_checkpoint
from laminar_core.store.pins import Pins
from tests.store.stores import claim, complete, damage, open_job

ANN = Actor("ann", reason="to compare", run_id="run-7")
ONE = CheckpointId(1)


@pytest.fixture
def store() -> CheckpointStore:
    store = open_job()
    complete(store, 1, claim(store))
    return store


def audited(store: CheckpointStore) -> list[tuple[str, str, str, str | None]]:
    records = AuditLog(store.objects, store.paths, lambda: 0).records()
    return [(r.action, r.outcome, r.actor, r.run_id) for r in records]


def test_a_pin_stays_until_it_is_taken_away(store):
    pinned = pin_checkpoint(store, ONE, "keep", ANN, 1_000)
    assert (pinned.reason, pinned.expires_at_ms) == ("to compare", None)
    assert Pins(store).find(ONE, "keep") == pinned
    assert unpin_checkpoint(store, ONE, "keep", ANN, 1_000).record == pinned
    assert Pins(store).list() == []
    assert audited(store) == [
        ("pin", "intended", "ann", "run-7"),
        ("pin", "done", "ann", "run-7"),
        ("unpin", "intended", "ann", "run-7"),
    ]


def test_a_hold_ends(store):
    assert pin_checkpoint(store, ONE, "keep", ANN, 1_000, hold_ms=5).expires_at_ms == 1_005


def test_what_cannot_be_pinned_is_in_the_log_as_failed(store):
    with pytest.raises(ConfigurationError, match="no completed checkpoint 7"):
        pin_checkpoint(store, CheckpointId(7), "keep", ANN, 1_000)
    assert [outcome for _, outcome, *_ in audited(store)] == ["intended", "failed"]


def test_a_bad_name_and_a_missing_pin_are_refused_before_anything_is_written(store):
    with pytest.raises(ConfigurationError, match="names no pin"):
        pin_checkpoint(store, ONE, "a/b", ANN, 1_000)
    with pytest.raises(ConfigurationError, match="has no pin named keep"):
        unpin_checkpoint(store, ONE, "keep", ANN, 1_000)
    assert audited(store) == []


def test_a_pin_that_cannot_be_read_is_taken_away_all_the_same(store):
    pin_checkpoint(store, ONE, "keep", ANN, 1_000)
    damage(store, "payments/pins/0000000001-keep.json", "torn")
    assert unpin_checkpoint(store, ONE, "keep", ANN, 1_000).record is None
    assert Pins(store).list() == []
