"""A fixed list is found in one step; the page's source finds files that appear later."""

import importlib
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.connectors.discovery import first_splits, fixed_list
from laminar_core.pipeline import Pipeline
from laminar_core.state.splits import split_table
from laminar_core.testing import Ledger, LedgerSink, Simulation
from laminar_core.testing.memory_source import MemorySource

PAGE = Path(__file__).parents[2] / "docs" / "custom-connector.md"
MODULES = ("lines", "checked_lines", "growing_lines")


def test_a_fixed_list_is_complete_after_its_only_step() -> None:
    table = split_table([{"split_id": 0}])
    found = fixed_list(lambda: table).step({})
    assert (found.splits, found.state, found.complete, found.problems) == (table, {}, True, ())


def test_the_first_splits_are_those_of_a_fresh_start() -> None:
    source = MemorySource([pa.table({"n": [1, 2]}), pa.table({"n": [3]})])
    assert first_splits(source).column("rows_total").to_pylist() == [2, 1]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The modules of the page, as a reader of it would have them."""
    text = PAGE.read_text()
    for name in MODULES:
        (code,) = re.findall(rf'```python title="{name}.py"\n(.*?)```', text, re.DOTALL)
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("growing_lines")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("seed", range(3))
def test_the_source_of_the_page_reads_files_that_appear_while_workers_die(
    seed: int, lines, tmp_path: Path
) -> None:
    folder, expected = tmp_path / "logs", []
    folder.mkdir()

    def put(name: str) -> None:
        rows = [f"{name} {n}" for n in range(30)]
        expected.extend(rows)
        (folder / f"{name}.log").write_text("".join(f"{row}\n" for row in rows))

    put("first")
    ledger, p = Ledger(), Pipeline("lines")
    read = p.source("lines", lines.GrowingLinesSource(str(folder), batch_rows=4))
    read.sink("out", LedgerSink(ledger))
    simulation = Simulation(p.plan(), seed=seed)
    world = simulation.world
    world.at_turn(60, lambda: put("second"))
    world.at_turn(150, lambda: simulation.kill_worker(0))
    world.at_turn(260, lambda: put("a third one"))
    world.at_turn(330, simulation.kill_driver)
    world.at_turn(420, lambda: (folder / "end.log").write_text(""))
    simulation.run_to_end()
    assert sorted(row["line"] for row in ledger.rows()) == sorted(expected)
    assert len(expected) == 90


@pytest.mark.usefixtures("lines")
def test_the_first_source_of_the_page_is_as_short_as_it_says(tmp_path: Path) -> None:
    said = re.search(r"complete in (\d+) lines", PAGE.read_text())
    assert said is not None
    assert len((tmp_path / "lines.py").read_text().splitlines()) == int(said[1]) <= 60


def test_the_second_source_of_the_page_notices_files_that_were_changed(
    lines, tmp_path: Path
) -> None:
    checked = importlib.import_module("checked_lines")
    for name in ("changed", "gone", "same"):
        (tmp_path / f"{name}.log").write_text("a line\n")
    source = checked.CheckedLinesSource(str(tmp_path))
    splits = source.files()
    (tmp_path / "changed.log").write_text("another line\n")
    (tmp_path / "gone.log").unlink()
    assert [gap.split for gap in source.gaps(splits)] == ["changed.log", "gone.log"]
    assert lines.LinesSource(str(tmp_path)).gaps(splits) == ()
