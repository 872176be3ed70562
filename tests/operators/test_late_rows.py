"""Late rows as they came: unit tests of both sides, and drawn histories against plain loops.

Histories are those of the models of windows and sessions: rows in any order, subtasks that reach
watermarks at different times, cuts of everything and of changes, and restarts with other workers.
"""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import partition
from laminar_core.errors import ConfigurationError, DataError
from laminar_core.operators import agg
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import Emitted, Side, SubtaskContext
from laminar_core.operators.late_rows import (
    BEHIND,
    PARTS,
    ROWS,
    BehindParter,
    LateRowsGiver,
    RowsBehind,
    WindowsWithLateRows,
    WithLateRows,
)
from laminar_core.operators.windows import (
    CumulativeWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)
from laminar_core.plan.evolving import Accumulating
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from tests.operators import test_aggregation_model as of_windows
from tests.operators import test_sessions_model as of_sessions

ID = CheckpointId(1)
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())])


def at(subtask: int = 0, parallelism: int = 1) -> SubtaskContext:
    return SubtaskContext("w", subtask, parallelism, 8, Generation(1))


def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
    """(key, event time); the value is the event time, too."""
    keys, times = zip(*rows, strict=True)
    return pa.record_batch([keys, pa.array(times, pa.timestamp("us")), times], schema=SCHEMA)


def parted(emitted: list[Emitted]) -> tuple[list[int], list[int]]:
    """Event times of the rows that went on, and of those that may be late."""
    found: tuple[list[int], list[int]] = ([], [])
    for one in emitted:
        is_side = isinstance(one, Side)
        rows = one.rows if isinstance(one, Side) else one
        assert isinstance(rows, pa.RecordBatch)
        assert not isinstance(one, Side) or one.output == BEHIND
        found[is_side].extend(rows.column("v").to_pylist())
    return found


class TestRowsBehind:
    """The sender's side."""

    SPEC = RowsBehind("w-behind", "ts", reach_us=5)

    def test_rows_further_behind_than_the_reach_may_be_late(self) -> None:
        parter = self.SPEC.open(at(), SCHEMA)
        assert parter.on_watermark(20) == ()
        assert parted([*parter.process(batch(("a", 14), ("b", 15), ("a", 30)))]) == ([15, 30], [14])
        assert parted([*parter.process(batch(("a", 15)))]) == ([15], [])
        assert parted([*parter.process(batch(("a", 1), ("a", 2)))]) == ([], [1, 2])

    def test_event_time_never_goes_back(self) -> None:
        parter = self.SPEC.open(at(), SCHEMA)
        parter.on_watermark(20)
        parter.on_watermark(10)
        assert parted([*parter.process(batch(("a", 14)))]) == ([], [14])

    def test_before_the_first_watermark_each_row_may_be_late(self) -> None:
        parter = self.SPEC.open(at(), SCHEMA)
        assert parted([*parter.process(batch(("a", 14), ("b", 99)))]) == ([], [14, 99])

    def test_behind_idle_sources_each_row_may_be_late(self) -> None:
        parter = RowsBehind("w-behind", "ts", 5, all_rows=True).open(at(), SCHEMA)
        parter.on_watermark(20)
        assert parted([*parter.process(batch(("b", 99)))]) == ([], [99])

    def test_a_restore_continues_from_the_least_watermark(self) -> None:
        snapshots = []
        for watermark_us in (30, 20):
            parter = self.SPEC.open(at(), SCHEMA)
            parter.on_watermark(watermark_us)
            snapshots.append(parter.snapshot(ID)())
        restored = self.SPEC.open(at(), SCHEMA)
        restored.restore(snapshots)
        assert parted([*restored.process(batch(("a", 14), ("a", 15)))]) == ([15], [14])
        unknown = self.SPEC.open(at(), SCHEMA)
        unknown.restore([*snapshots, self.SPEC.open(at(), SCHEMA).snapshot(ID)()])
        assert parted([*unknown.process(batch(("a", 99)))]) == ([], [99])

    def test_once_behind_idle_sources_each_row_may_be_late_in_later_runs_too(self) -> None:
        """Receivers may be further in event time than the sender for ever."""
        snapshot = RowsBehind("w-behind", "ts", 5, all_rows=True).open(at(), SCHEMA).snapshot(ID)()
        for _ in range(2):
            parter = self.SPEC.open(at(), SCHEMA)
            parter.restore([snapshot, self.SPEC.open(at(), SCHEMA).snapshot(ID)()])
            parter.on_watermark(20)
            assert parted([*parter.process(batch(("b", 99)))]) == ([], [99])
            snapshot = parter.snapshot(ID)()

    def test_which_way_a_row_takes_is_no_part_of_the_description(self) -> None:
        assert RowsBehind("w-behind", "ts", 9, all_rows=True).describe() == self.SPEC.describe()

    def test_the_column_must_be_a_time_and_have_values(self) -> None:
        with pytest.raises(ConfigurationError, match="event time must be a timestamp"):
            RowsBehind("w-behind", "k", 0).output_schema(SCHEMA)
        parter = self.SPEC.open(at(), SCHEMA)
        times = pa.array([None], pa.timestamp("us"))
        with pytest.raises(DataError, match="no event time"):
            list(parter.process(pa.record_batch([["a"], times, [1]], schema=SCHEMA)))


def with_late_rows(window: Window, lateness_us: int = 0) -> WindowsWithLateRows:
    aggregates = (agg.count(),)
    combine = PartialAggregate("w-combine", ("k",), "ts", window, aggregates)
    return WindowsWithLateRows(
        combine, WindowAggregate("w", ("k",), window, aggregates, lateness_us)
    )


def test_the_aggregation_stays_what_it_is() -> None:
    spec = with_late_rows(TumblingWindow(10))
    inputs = (spec.combine.output_schema(SCHEMA), SCHEMA)
    assert spec.describe() == {**spec.merge.describe(), "late_rows": True}
    assert spec.output_schema(*inputs) == spec.merge.output_schema(inputs[PARTS])
    assert spec.state_tables(*inputs) == spec.merge.state_tables(inputs[PARTS])
    assert spec.side_outputs(*inputs) == {"late": SCHEMA}
    assert (spec.output_mode, spec.updates_by) == ("append", ())
    assert isinstance(spec, Accumulating)
    assert spec.first_values(*inputs) == spec.merge.first_values(inputs[PARTS])


def test_accumulators_that_are_late_all_the_same_are_counted() -> None:
    """A row cannot be taken out of accumulators, so nothing can be given back."""
    spec = with_late_rows(TumblingWindow(10))
    combiner = spec.combine.open(at(), SCHEMA)
    giver = spec.open(at(), spec.combine.output_schema(SCHEMA), SCHEMA)
    list(giver.on_watermark(10))
    [partial] = combiner.process(batch(("a", 1), ("a", 2)))
    assert list(giver.process_input(PARTS, partial)) == []
    assert giver.late_row_count == 2


def test_what_was_late_before_a_rescale_is_late_afterwards() -> None:
    """Goal: rows of a subtask that was ahead stay late, although the watermark falls back."""
    spec = with_late_rows(TumblingWindow(10))
    inputs = (spec.combine.output_schema(SCHEMA), SCHEMA)
    keys = [f"k{n}" for n in range(20)]
    snapshots = []
    for index, watermark_us in enumerate((10, 5)):
        giver = spec.open(at(index, 2), *inputs)
        list(giver.on_watermark(watermark_us))
        snapshots.append(giver.snapshot(ID)())
    restored = spec.open(at(), *inputs)
    restored.restore(snapshots)
    late = [s.rows for s in restored.process_input(ROWS, batch(*((key, 1) for key in keys)))]
    found = {key for rows in late for key in rows.column("k").to_pylist()}
    owned = dict(partition(batch(*((key, 1) for key in keys)), ("k",), 8, 2))
    assert found == set(owned[0].column("k").to_pylist())
    assert restored.late_row_count == len(found)


class LateSessionModel(of_sessions.Model):
    """Remembers late rows."""

    def __init__(self, lateness_us: int) -> None:
        super().__init__(lateness_us)
        self.late_rows: Counter = Counter()

    def add(self, rows: list[of_sessions.Row]) -> None:
        for row in rows:
            before = self.late
            super().add([row])
            if self.late > before:
                self.late_rows[row] += 1


class LateSessionJob(of_sessions.Job):
    """The job of the model, with rows that travel on two edges."""

    parter: BehindParter

    def __init__(self, lateness_us: int, parallelism: int) -> None:
        self.kept: Counter = Counter()
        self.behind = RowsBehind("behind", "ts", lateness_us)
        self.parter = self.behind.open(at(), of_sessions.SCHEMA)
        super().__init__(lateness_us, parallelism)

    def start(self, parallelism: int) -> None:
        spec = WithLateRows(self.partial, self.spec)
        super().start(parallelism)
        inputs = (self.partial.output_schema(of_sessions.SCHEMA), of_sessions.SCHEMA)
        self.subtasks = [
            spec.open(
                SubtaskContext("any", i, parallelism, of_sessions.MAX_PARALLELISM, Generation(1)),
                *inputs,
            )
            for i in range(parallelism)
        ]

    def add(self, rows: list[of_sessions.Row]) -> None:
        for emitted in self.parter.process(of_sessions.batch_of(rows)):
            if isinstance(emitted, Side):
                self.send(ROWS, emitted.rows)
                continue
            assert isinstance(emitted, pa.RecordBatch)
            for partial in self.combiner.process(emitted):
                self.send(PARTS, partial)

    def send(self, index: int, rows: pa.RecordBatch) -> None:
        count = len(self.subtasks)
        for i, part in partition(rows, of_sessions.KEYS, of_sessions.MAX_PARALLELISM, count):
            giver = self.subtasks[i]
            assert isinstance(giver, LateRowsGiver)
            for late in giver.process_input(index, part):
                assert isinstance(late, Side)
                assert (index, late.output) == (ROWS, "late")
                self.kept.update(rows_of(late.rows))

    def sender_reaches(self, watermark_us: int) -> None:
        self.parter.on_watermark(watermark_us)
        super().sender_reaches(watermark_us)

    def cut(self, *, full: bool, parallelism: int | None, random) -> None:
        """Take a checkpoint; rows after it are lost if the job continues from it."""
        kept, parted = Counter(self.kept), self.parter.snapshot(ID)
        super().cut(full=full, parallelism=parallelism, random=random)
        if parallelism is not None:
            self.kept = kept
            self.parter = self.behind.open(at(), of_sessions.SCHEMA)
            self.parter.restore([parted()])


def rows_of(late: pa.RecordBatch) -> list[of_sessions.Row]:
    assert late.schema == of_sessions.SCHEMA
    times = late.column("ts").cast(pa.int64()).to_pylist()
    columns = (late.column(name).to_pylist() for name in ("merchant", "country", "v"))
    return [
        ((merchant, country), time_us, v)
        for time_us, merchant, country, v in zip(times, *columns, strict=True)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chunk", range(9))
def test_late_rows_of_sessions_are_the_models_wherever_the_job_is_cut(chunk: int) -> None:
    late = 0
    for seed in range(chunk * 25, chunk * 25 + 25):
        history = of_sessions.History(seed)
        history.model = LateSessionModel(history.model.lateness_us)
        history.job = LateSessionJob(history.model.lateness_us, history.parallelism)
        try:
            history.run(steps=12)
            assert history.job.kept == history.model.late_rows
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        late += history.job.kept.total()
    assert late > 25


class LateWindowModel(of_windows.Model):
    """Remembers late rows."""

    def __init__(self, window: Window, lateness_us: int) -> None:
        super().__init__(window, lateness_us)
        self.late_rows: Counter = Counter()

    def add(self, rows: list[of_windows.Row]) -> None:
        for row in rows:
            before = self.late_row_count
            super().add([row])
            if self.late_row_count > before:
                self.late_rows[row] += 1


class LateWindowJob(of_windows.Job):
    """The job of the model, with rows that travel on two edges."""

    def __init__(self, window: Window, lateness_us: int, keys_are: str) -> None:
        self.kept: Counter = Counter()
        self.behind = RowsBehind("behind", "ts", lateness_us)
        self.parter = self.behind.open(at(), SCHEMA)
        super().__init__(window, lateness_us, 2, keys_are)

    def start(self, parallelism: int, backend: of_windows.Backend) -> None:
        super().start(parallelism, backend)
        spec = WindowsWithLateRows(self.partial, self.merging)
        rows = self.batch([]).schema
        self.subtasks = [
            spec.open(subtask._context, self.partial.output_schema(rows), rows)
            for subtask in self.subtasks
        ]

    def add(self, rows: list[of_windows.Row]) -> None:
        for emitted in self.parter.process(self.batch(rows)):
            if isinstance(emitted, Side):
                self.send(ROWS, emitted.rows)
                continue
            assert isinstance(emitted, pa.RecordBatch)
            for partial in self.combiner.process(emitted):
                self.send(PARTS, partial)

    def send(self, index: int, rows: pa.RecordBatch) -> None:
        count = len(self.subtasks)
        for i, part in partition(rows, of_windows.KEYS, of_windows.MAX_PARALLELISM, count):
            for late in self.subtasks[i].process_input(index, part):
                assert (index, late.output) == (ROWS, "late")
                assert late.rows.schema == self.batch([]).schema
                names = ("merchant", "country", "ts", "v")
                columns = [late.rows.column(name).to_pylist() for name in names]
                columns[2] = late.rows.column("ts").cast(pa.int64()).to_pylist()
                self.kept.update(zip(*columns, strict=True))

    def advance(self, watermark_us: int) -> list[tuple]:
        self.parter.on_watermark(watermark_us)
        return super().advance(watermark_us)

    def cut(self, cut: of_windows.Cut) -> None:
        """Take a checkpoint; rows after it are lost if the job continues from it."""
        kept, parted = Counter(self.kept), self.parter.snapshot(ID)
        super().cut(cut)
        if cut.parallelism is not None:
            self.kept = kept
            self.parter = self.behind.open(at(), SCHEMA)
            self.parter.restore([parted()])

    def restart(self, snapshots, parallelism: int, backend: of_windows.Backend) -> None:
        as_before = parallelism == len(self.subtasks)
        self.start(parallelism, backend)
        for index, subtask in enumerate(self.subtasks):
            owned = subtask._merging._key_groups
            mine = [s for s in snapshots if of_windows.meets(s.properties["key_groups"], owned)]
            subtask.restore([of_windows.again(s) for s in mine])
            if as_before:
                subtask.snapshot_changes(ID)
                self.chains[index] = list(snapshots[index].rows())


WINDOWS = (TumblingWindow(20), SlidingWindow(30, 10), CumulativeWindow(40, 20, 5))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_late_rows_of_windows_are_the_models_wherever_the_job_is_cut(seed: int) -> None:
    random = Random(seed)
    late = 0
    for number in range(25):
        window, lateness_us = random.choice(WINDOWS), random.choice([0, 15])
        model = LateWindowModel(window, lateness_us)
        job = LateWindowJob(window, lateness_us, random.choice(["plain", "encoded"]))
        try:
            play(model, job, random)
            assert job.kept == model.late_rows, f"history {number}"
            assert job.late_row_count == model.late_row_count
        finally:
            job.close()
        late += job.kept.total()
    assert late > 25


def play(model: LateWindowModel, job: LateWindowJob, random: Random) -> None:
    """Rows, watermarks and cuts, in any order; what fires is the model's."""
    now_us = 0
    for step in range(12):
        if step in (4, 8):
            mode = random.choice(["full", "changes"])
            parallelism = random.choice([None, 1, 2, 3, 4])
            job.cut(of_windows.Cut(mode, parallelism, "memory"))
        rows: list[of_windows.Row] = [
            (
                random.choice(["a", "b", None]),
                random.choice([1, 2]),
                now_us + random.randrange(-60, 40),
                random.choice([None, 1, 2]),
            )
            for _ in range(random.randrange(5))
        ]
        model.add(rows)
        if rows:
            job.add(rows)
        now_us += random.randrange(0, 20)
        watermark_us = WATERMARK_END_US if step == 11 else now_us
        assert Counter(job.advance(watermark_us)) == Counter(model.advance(watermark_us))
