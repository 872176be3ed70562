"""Sources are added, removed and come back between runs: every row once, whatever dies meanwhile.

In between drivers and workers are killed and the number of workers changes.
"""

from collections import Counter
from dataclasses import replace

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.errors import ConfigurationError, IncompatibleStateError
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import Burden, normal, rows_of
from tests.simulated.changing_sources import TABLES, Changing, positions


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kill", ["", "driver", "worker"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_growing", [False, True])
def test_sources_come_and_go_and_every_row_is_there_once(
    seed: int, kill: str, *, is_growing: bool
) -> None:
    job = Changing(seed, is_growing=is_growing)
    job.run_and_stop("a", workers=1, kill=kill)
    with_b = job.run_and_stop("b", "a", workers=2, kill=kill)
    without_b = job.run_and_stop("a", "c", workers=3, kill=kill)
    assert {o: c.checkpoint_id for o, c in without_b.carried.items()} == dict.fromkeys(
        ("b", "b-time"), with_b.checkpoint_id
    )
    assert without_b.workers == 3
    assert positions(without_b, "b") == positions(with_b, "b")
    only_c = job.run_and_stop("c", workers=1, kill=kill)
    assert only_c.carried.keys() == {"a", "b", "a-time", "b-time"}
    assert only_c.carried["b"].checkpoint_id == with_b.checkpoint_id, "carried twice"
    job.finish("a", "b", "c", workers=2)
    job.check("a", "b", "c")
    assert job.newest().carried == {}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("timeout_ms", [None, 0])
def test_after_a_death_without_a_stop_sources_come_and_go_as_well(
    seed: int, timeout_ms: int | None
) -> None:
    """Barriers do not overtake between a source and a union, so nothing is in flight there."""
    unaligned = CoordinatorConfig(interval_ms=40, alignment_timeout_ms=timeout_ms)
    job = Changing(seed, checkpoint=unaligned, burden=Burden(1.0))
    job.run_and_kill("a", "b")
    job.run_and_kill("a", workers=3)
    job.run_and_kill("c", "a", workers=1)
    job.finish("c", "b", "a")
    job.check("a", "b", "c")


def test_rows_in_flight_behind_a_source_are_processed_before_it_goes() -> None:
    job = Changing(
        checkpoint=CoordinatorConfig(interval_ms=40, alignment_timeout_ms=0),
        rebalances=True,
        burden=Burden(12.0),
    )
    job.run_and_kill("a", "b")
    assert any(entry.edge.upstream == "b" for entry in job.newest().inflight_data)
    job.start("a")
    with pytest.raises(IncompatibleStateError, match="has rows in flight behind source b"):
        job.simulation.run()
    aligned = CoordinatorConfig(interval_ms=40)
    job.simulation.options = replace(job.simulation.options, checkpoint=aligned)
    job.burden.row_ms = 0
    job.run_and_stop("a", "b")
    job.run_and_stop("a")
    job.finish("a", "b")
    job.check("a", "b")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_source_that_comes_late_are_counted_or_called_late(seed: int) -> None:
    """Event time does not go back for it: windows that were emitted stay as they are."""
    job = Changing(seed, has_windows=True)
    job.run_and_stop("a")
    job.run_and_stop("a", "b", workers=3)
    job.run_and_stop("a")
    late = job.finish("b", "a")
    counted = sum(int(str(row["count"])) for row in job.ledger.rows())
    assert late > 0
    assert counted + late == sum(t.num_rows for name in "ab" for t in TABLES[name])
    windows = Counter((row["key"], row["window_start"]) for row in job.ledger.rows())
    assert set(windows.values()) == {1}, "no window is emitted twice"


def test_positions_that_were_dropped_are_read_again_from_the_beginning() -> None:
    job = Changing()
    job.run_and_stop("a", "b")
    before = Counter(normal(job.ledger.rows()))
    drop = (parse_acceptance("source-drop:b"),)
    job.start("a")
    job.simulation.when(CheckpointCompleted, job.simulation.stop, job.completed + 2)
    job.simulation.run(accepted=drop)
    assert job.newest().carried == {}
    with pytest.raises(ConfigurationError, match="nothing needs --accept source-drop:b"):
        job.simulation.run(accepted=drop)
    job.finish("a", "b")
    found = Counter(normal(job.ledger.rows()))
    read_before = before & Counter(normal(rows_of(TABLES["b"])))
    assert read_before
    assert found == Counter(normal(rows_of(TABLES["a"] + TABLES["b"]))) + read_before
