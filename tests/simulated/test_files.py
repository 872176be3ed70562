"""Files of lines are read exactly once, whatever dies and however many workers go on."""

import gc
import gzip
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.places import LocalPlace
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.driver.events import CheckpointCompleted, SplitsNotFound
from laminar_core.errors import DataError, IncompatibleStateError
from laminar_core.pipeline import LettersTo, Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.testing.jobs import Job, with_ledgers
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

COLUMNS = pa.schema([("n", pa.int64())])
DAYS = pa.schema([("day", pa.int32())])


@pytest.fixture(autouse=True)
def files_that_killed_workers_left_open() -> Iterator[None]:
    """Who is killed closes nothing, and all of them are in this process."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Files:
    """A job that reads files of lines in directories; every ninth line is no row."""

    def __init__(self, folder: Path, seed: int, files: int = 6) -> None:
        self.folder, draw = folder, Random(seed)
        self.rows: list[dict[str, int]] = []
        self.bad: list[tuple[str, bytes]] = []
        for at in range(files):
            name = f"day={at % 3}/f{at}.json" + (".gz" if at % 2 else "")
            lines = [self._line(name, at, n) for n in range(draw.randrange(1, 40))]
            data = b"\n".join(lines)
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(gzip.compress(data) if at % 2 else data)
        self.letters = Ledger()
        self.source = FileSource(folder, JsonFormat(), COLUMNS, DAYS, batch_rows=3)

    def _line(self, name: str, at: int, n: int) -> bytes:
        number = 1_000 * at + n
        if n % 9 == 8:
            self.bad.append((name, b"bad %d" % number))
            return b"bad %d" % number
        self.rows.append({"n": number, "day": at % 3})
        return b'{"n":%d}' % number

    def job(self) -> Job:
        p = Pipeline("files")
        sink = LettersTo("bad", LedgerSink(self.letters, "bad"))
        rows = p.source("in", self.source, on_bad_row=sink, bad_share_max="50%")
        return with_ledgers(p, {"out": (rows.rebalance(), self.rows)})

    def check(self, job: Job) -> None:
        """Assert that each line came once, as a row or as a letter."""
        job.check()
        found = [(row["split"], row["value"]) for row in self.letters.rows()]
        assert sorted(found) == sorted(self.bad)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_each_line_comes_once_through_deaths_and_changes_of_parallelism(
    tmp_path: Path, seed: int
) -> None:
    files = Files(tmp_path, seed)
    job = files.job()
    overtaking = None if seed % 2 else 0
    simulation = Simulation(
        job.plan, seed=seed, checkpoint=CoordinatorConfig(10, alignment_timeout_ms=overtaking)
    )
    for parallelism in (1, 3):
        simulation.options = replace(simulation.options, parallelism=parallelism)
        done = sum(isinstance(e, CheckpointCompleted) for e in simulation.events)
        simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), done + 1)
        simulation.when(CheckpointCompleted, simulation.kill_driver, done + 2)
        with pytest.raises(ProcessKilledError):
            simulation.run(take_over=True)
    simulation.options = replace(simulation.options, parallelism=2)
    result = simulation.run(take_over=True)
    files.check(job)
    assert result.rows_in == len(files.rows) + len(files.bad)
    assert result.bad_rows == BadRowTotals(letters=len(files.bad))


def test_a_file_that_is_gone_before_it_was_read_refuses_the_restart(tmp_path: Path) -> None:
    files = Files(tmp_path, 1, files=60)
    job = files.job()
    simulation = Simulation(job.plan, parallelism=1, checkpoint=CoordinatorConfig(5))
    simulation.when(CheckpointCompleted, simulation.kill_driver, 1)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    (tmp_path / "day=2/f59.json.gz").unlink()
    with pytest.raises(IncompatibleStateError, match=r"day=2/f59.json.gz is gone"):
        simulation.run(take_over=True)


INTERVAL_MS = 10
LAST_CHECKPOINT = 40


class ComingFiles:
    """A job that never ends, and writers that make files in two steps while it runs."""

    def __init__(self, folder: Path, seed: int, files: int = 12) -> None:
        self.folder = folder
        source = FileSource(
            folder,
            JsonFormat(),
            COLUMNS,
            batch_rows=3,
            mode="continuous",
            interval=f"{INTERVAL_MS} ms",
            ordered=seed % 3 == 2,
        )
        p = Pipeline("coming")
        self.rows: list[dict[str, int]] = []
        self.job = with_ledgers(p, {"out": (p.source("in", source).rebalance(), self.rows)})
        self.simulation = Simulation(
            self.job.plan, parallelism=1 + seed % 3, seed=seed, checkpoint=CoordinatorConfig(10)
        )
        draw = Random(seed)
        for at in range(files):
            self._write_later(at, draw.randrange(2, 30))

    def _write_later(self, at: int, count: int) -> None:
        """Write some of the lines after a checkpoint, and the others before a second look."""
        path = self.folder / f"f{at:03}.json"
        numbers = range(1_000 * at, 1_000 * at + count)
        self.rows += [{"n": n} for n in numbers]
        lines = [b'{"n":%d}\n' % n for n in numbers]
        halves = b"".join(lines)[: 5 * count], b"".join(lines)[5 * count :]

        def write(data: bytes) -> None:
            with path.open("ab") as file:
                file.write(data)

        def write_both() -> None:
            write(halves[0])
            self.simulation.world.later(INTERVAL_MS / 2, partial(write, halves[1]))

        if at == 0:
            write(halves[0] + halves[1])
        else:
            self.simulation.when(CheckpointCompleted, write_both, at)

    def run(self) -> None:
        """Run until long after the last file, through deaths, and assert what came out."""
        self.simulation.when(CheckpointCompleted, self.simulation.stop, LAST_CHECKPOINT)
        assert self.simulation.run_to_end().outcome == "stopped"
        self.job.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(9))
def test_files_that_come_are_read_once_and_whole_whoever_dies(tmp_path: Path, seed: int) -> None:
    coming = ComingFiles(tmp_path, seed)
    for number in (1, 3, 6):
        coming.simulation.when(CheckpointCompleted, coming.simulation.kill_driver, number)
        coming.simulation.when(CheckpointCompleted, partial(coming.simulation.kill_worker, 0), 8)
    coming.run()


@pytest.mark.parametrize("seed", range(3))
def test_a_source_that_does_not_wait_until_files_are_settled_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The canary of the tests here: without the rule, a file is read before it is whole."""
    monkeypatch.setattr(LocalPlace, "whole_at_once", True)
    with pytest.raises((AssertionError, DataError)):
        ComingFiles(tmp_path, seed).run()


@pytest.mark.parametrize("seed", [0, 1])
def test_files_that_come_go_to_one_three_and_two_workers(tmp_path: Path, seed: int) -> None:
    coming = ComingFiles(tmp_path, seed)
    simulation = coming.simulation
    for workers, number in ((1, 2), (3, 5)):
        simulation.options = replace(simulation.options, parallelism=workers)
        simulation.when(CheckpointCompleted, simulation.kill_driver, number)
        with pytest.raises(ProcessKilledError):
            simulation.run()
    simulation.options = replace(simulation.options, parallelism=2)
    coming.run()


def test_a_file_that_was_read_may_go_and_one_that_is_changed_is_reported(tmp_path: Path) -> None:
    coming = ComingFiles(tmp_path, 0)
    at_last = partial(coming.simulation.when, CheckpointCompleted, number=LAST_CHECKPOINT - 10)
    at_last((tmp_path / "f000.json").unlink)
    at_last(lambda: (tmp_path / "f001.json").write_bytes(b'{"n":1}'))
    coming.run()
    reported = [e.problem for e in coming.simulation.events if isinstance(e, SplitsNotFound)]
    assert reported == ["was changed after it was found, and is not read again: f001.json"]
