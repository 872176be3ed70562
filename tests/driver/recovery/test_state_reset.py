"""A reset: everything or nothing, and only what the user named."""

import re
from dataclasses import replace

import pytest

from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.state_reset import mapping_of, reset
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators import agg
from laminar_core.operators.mapping import change_back_or_reset
from laminar_core.protocol.recovery import Refuse, RestoreFrom, StartFresh
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import Choice
from laminar_core.testing.ledger import Ledger
from tests.simulated.test_aggregate_state import running, stopped_after


@pytest.fixture(scope="module")
def manifest() -> CheckpointManifest:
    simulation = stopped_after(running(Ledger(), agg.sum("v")), 1, seed=1)
    choice = simulation.store.choose_checkpoint()
    assert choice.manifest is not None
    return choice.manifest


@pytest.fixture
def choice(manifest: CheckpointManifest) -> Choice:
    checkpoint_id = CheckpointId(manifest.checkpoint_id)
    return Choice(RestoreFrom(checkpoint_id), manifest, (manifest,))


CHANGED = running(Ledger(), agg.count())
RENAMED = running(Ledger(), agg.sum("v"), name="sums")


def test_what_maps_is_reported_by_operator(manifest: CheckpointManifest) -> None:
    mapping = mapping_of(manifest, CHANGED)
    assert [name for name, _ in mapping.changed] == ["totals"]
    assert (mapping.dropped, mapping.new) == ((), ())
    assert {"in", "out"} <= set(mapping.mapped)
    renamed = mapping_of(manifest, RENAMED)
    assert (renamed.dropped, renamed.new) == (("totals",), ("sums", "sums-combine"))


def test_a_reset_leaves_all_of_the_checkpoint_behind(choice: Choice) -> None:
    fresh, left = reset(choice, CHANGED, ("totals",))
    assert isinstance(fresh.decision, StartFresh)
    assert (fresh.manifest, fresh.redrive) == (None, ())
    assert left is not None
    assert left.lines()[0].endswith("to reset totals: all state is dropped, all sources start anew")


def test_operators_that_are_new_need_not_be_named(choice: Choice) -> None:
    fresh, _ = reset(choice, RENAMED, ("totals",))
    assert fresh.manifest is None


def test_state_that_does_not_fit_and_is_not_named_is_in_the_way(choice: Choice) -> None:
    with pytest.raises(
        IncompatibleStateError, match=r"totals do not fit.*name them, too"
    ) as caught:
        reset(choice, CHANGED, ("in",))
    assert caught.value.code is ErrorCode.OPERATORS_CHANGED


def test_what_a_refusal_advises_is_accepted_and_another_name_is_not(
    choice: Choice, manifest: CheckpointManifest
) -> None:
    (named,) = re.findall(r"--reset-state (\S+),", change_back_or_reset("totals"))
    fresh, _ = reset(choice, CHANGED, (named,))
    assert fresh.manifest is None
    with pytest.raises(IncompatibleStateError, match="has state of totals, which the pipeline"):
        raise next(mismatches(manifest, RENAMED, manifest.workers)).error


def test_a_name_that_nobody_has_is_refused(choice: Choice) -> None:
    with pytest.raises(ConfigurationError, match="no operator total to reset; there are: in, out"):
        reset(choice, CHANGED, ("total",))


def test_without_a_checkpoint_there_is_nothing_to_reset(choice: Choice) -> None:
    for decision in (StartFresh(), Refuse("damaged")):
        none = replace(choice, decision=decision, manifest=None)
        assert reset(none, CHANGED, ("totals",)) == (none, None)
