"""The store of the benchmark is one that lists, plans and ticks find whole."""

from pathlib import Path

import pytest

from benchmarks.kept import COUNTS, JOB, KEPT_LAST, Took, check, results_of, timed, write_store
from benchmarks.kept_ticks import ticks_of
from benchmarks.page_tables import TABLES
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.checkpoint_index import BLOCK
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.checkpoint_store import CheckpointStore

COUNT = BLOCK + 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "store"
    write_store(folder, COUNT)
    return folder


def test_all_checkpoints_are_complete_and_committed_and_the_index_is_there(folder: Path) -> None:
    store = CheckpointStore.open(str(folder), JOB)
    summaries = store.list_summaries()
    assert [each.checkpoint_id for each in summaries] == list(range(1, COUNT + 1))
    assert store.verify(CheckpointId(COUNT)).problem is None
    assert store.objects.children(store.paths.index)
    plan = Retention(store, RetentionPolicy(keep_last=KEPT_LAST), lambda: 0, readers=1).plan()
    assert list(plan.plan.deleted_ids) == list(range(1, COUNT - KEPT_LAST + 1))


def test_a_sensor_catches_up_and_then_has_nothing_to_report(folder: Path) -> None:
    ticks = ticks_of(str(folder), COUNT)
    assert len(ticks["tick"]) == 3
    assert len(ticks["tick_behind"]) > 1, "one tick reports a part of them"


def test_every_cell_of_the_table_has_a_figure_and_growth_is_relative_to_linear() -> None:
    names = ("list", "plan", "tick", "tick_behind")
    took = {count: {name: [Took(0.5, count * 1e-3)] for name in names} for count in COUNTS}
    results = {result.name: result for result in results_of(took)}
    table = TABLES["kept"]
    assert results.keys() >= {
        template.format(word) for word in table.rows.values() for template in table.columns.values()
    }
    assert results["kept_10000_list_growth"].value == pytest.approx(1)
    assert results["kept_10000_plan"].met is True


def test_what_a_command_printed_is_compared_and_a_failure_is_one() -> None:
    check("list", [{"checkpoint_id": 1}], 1)
    check("plan", {"deleted_checkpoints": []}, 3)
    with pytest.raises(AssertionError):
        check("plan", {"deleted_checkpoints": []}, 4)
    printed, took = timed(["/bin/sh", "-c", "echo it"])
    assert printed == b"it\n"
    assert took.wall_s > 0
    with pytest.raises(RuntimeError, match="ended with 3"):
        timed(["/bin/sh", "-c", "exit 3"])
