"""Early results against a plain loop: what open windows amount to, for keys that have changed."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from laminar_core.operators import agg
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.windows import (
    CumulativeWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from tests.operators import test_aggregation_model as of_windows

EARLY_US = 10
WINDOWS = (
    TumblingWindow(40),
    SlidingWindow(30, 10, 5),
    CumulativeWindow(40, 20),
    TumblingWindow(20),
)


class EarlyModel(of_windows.Model):
    """Also knows which windows have changed since early results were last emitted."""

    def __init__(self, window: Window, lateness_us: int) -> None:
        super().__init__(window, lateness_us)
        self.changed: set[tuple] = set()

    def add(self, rows: list[of_windows.Row]) -> None:
        super().add(rows)
        for row in rows:
            open_windows = [w for w in self.windows_of(row[2]) if not self.has_fired(w)]
            self.changed |= {(row[0], row[1], start, end) for end, start in open_windows}

    def is_early(self, watermark_us: int) -> bool:
        """Whether this watermark passes a multiple of the interval."""
        if self.watermark_us is None:
            return True
        return self.watermark_us // EARLY_US < watermark_us // EARLY_US

    def so_far(self) -> dict[tuple, tuple]:
        """The results of open windows, by key and window."""
        found = {}
        for (end, start), rows in self.open.items():
            for key in {row[:2] for row in rows}:
                values = [row[3] for row in rows if row[:2] == key]
                found[*key, start, end] = (*key, start, end, *of_windows.outcome(key, values))
        return found


class EarlyJob(of_windows.Job):
    """The job of the model, with early results."""

    def __init__(self, window: Window, lateness_us: int, backend: of_windows.Backend) -> None:
        super().__init__(window, lateness_us, 2, "plain", backend)

    def start(self, parallelism: int, backend: of_windows.Backend) -> None:
        spec = self.merging
        self.merging = WindowAggregate(
            spec.operator_id,
            spec.keys,
            spec.window,
            spec.aggregates,
            spec.allowed_lateness_us,
            EARLY_US,
        )
        super().start(parallelism, backend)

    def advance(self, watermark_us: int) -> list[tuple]:
        """Unlike those of windows that end, early results do not come in the order of ends."""
        return [
            row
            for subtask in self.subtasks
            for result in subtask.on_watermark(watermark_us)
            for row in of_windows.as_tuples(result)
        ]


@pytest.fixture(autouse=True)
def small_panes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a handful of rows cross every threshold."""
    monkeypatch.setattr(of_windows.panes, "BUCKET_ROWS_MAX", 2)
    monkeypatch.setattr(of_windows.panes, "PENDING_ROWS_MIN", 2)
    monkeypatch.setattr(of_windows.window_state, "FIRED_ROWS_MIN", 5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(9))
def test_early_results_are_the_models_wherever_the_job_is_cut(seed: int) -> None:
    """Goal: final results are those of a job without early ones, and these say what there is.

    Method: drawn rows, watermarks and cuts. After a restore all keys count as changed, so results
    may be emitted again as they were; otherwise exactly what has changed is.
    """
    random = Random(seed)
    early_count = 0
    for number in range(12):
        window, lateness_us = random.choice(WINDOWS), random.choice([0, 25])
        backend: of_windows.Backend = "rocksdb" if number == 9 else "memory"
        job = EarlyJob(window, lateness_us, backend)
        try:
            early_count += play(EarlyModel(window, lateness_us), job, random)
        except AssertionError as error:
            raise AssertionError(f"history {number}") from error
        finally:
            job.close()
    assert early_count > 50


def play(model: EarlyModel, job: EarlyJob, random: Random) -> int:
    now_us = early_count = 0
    restored = False
    for step in range(12):
        if step in (4, 8):
            mode, parallelism = (
                random.choice(["full", "changes"]),
                random.choice([None, 1, 2, 3, 4]),
            )
            job.cut(of_windows.Cut(mode, parallelism, "memory"))
            restored = restored or parallelism is not None
        rows: list[of_windows.Row] = [
            (
                random.choice(["a", "b", None]),
                random.choice([1, 2]),
                now_us + random.randrange(-40, 40),
                random.choice([None, 1, 2]),
            )
            for _ in range(random.randrange(5))
        ]
        model.add(rows)
        if rows:
            job.add(rows)
        now_us += random.randrange(0, 20)
        watermark_us = WATERMARK_END_US if step == 11 else now_us
        is_early = model.is_early(watermark_us)
        expected, found = Counter(model.advance(watermark_us)), Counter(job.advance(watermark_us))
        early = found - expected
        assert expected - found == Counter(), "final results are missing"
        if not is_early:
            assert not early
            continue
        so_far = model.so_far()
        least = Counter(row for key, row in so_far.items() if key in model.changed)
        assert least - early == Counter(), "changed results are missing"
        assert early - (Counter(so_far.values()) if restored else least) == Counter()
        model.changed, restored = set(), False
        early_count += early.total()
    return early_count


def opened(early_us: int | None, lateness_us: int = 0):
    """A job of one worker that counts rows of minutes: functions to add rows, and to advance."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64())])
    window, aggregates = TumblingWindow(60), (agg.count(),)
    partial = PartialAggregate("w-combine", ("k",), "ts", window, aggregates)
    spec = WindowAggregate("w", ("k",), window, aggregates, lateness_us, early_us)
    context = SubtaskContext("w", 0, 1, 8, Generation(1))
    combiner = partial.open(context, schema)
    subtask = spec.open(context, partial.output_schema(schema))

    def add(*times: int) -> None:
        for one in combiner.process(pa.record_batch([["a"] * len(times), times], schema=schema)):
            assert list(subtask.process(one)) == []

    def advance(watermark_us: int) -> list[tuple[int, int]]:
        batches = [*subtask.on_watermark(watermark_us)]
        return [(row[1], row[3]) for b in batches for row in tuples(b)]

    return add, advance, subtask


def tuples(batch: pa.RecordBatch) -> list[tuple]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_results_of_open_windows_come_when_event_time_passes_a_multiple_of_the_interval() -> None:
    add, advance, _ = opened(early_us=20)
    add(1, 5, 70)
    assert advance(10) == [(0, 2), (60, 1)]
    add(11)
    assert advance(19) == []
    assert advance(39) == [(0, 3)]
    assert advance(40) == [], "nothing has changed"
    add(50)
    assert advance(60) == [(0, 4)], "the window ends, and its result comes once"
    assert advance(WATERMARK_END_US) == [(60, 1)]


def test_with_allowed_lateness_a_late_row_corrects_the_result_at_the_next_multiple() -> None:
    add, advance, subtask = opened(early_us=60, lateness_us=100)
    add(1, 70)
    assert advance(5) == [(0, 1), (60, 1)]
    add(2)
    assert advance(60) == [(0, 2)]
    add(3)
    assert advance(100) == []
    assert advance(130) == [(0, 3)]
    assert advance(160) == [(0, 3)], "the final result comes in any case"
    add(4)
    assert subtask.late_row_count == 1


def test_after_a_restore_results_come_again_and_state_has_nothing_more() -> None:
    add, advance, subtask = opened(early_us=20)
    add(1)
    advance(20)
    snapshot = subtask.snapshot(CheckpointId(1))()
    _, _, without = opened(early_us=None)
    assert without.snapshot(CheckpointId(1))().properties.keys() == snapshot.properties.keys()
    _, advance_restored, restored = opened(early_us=20)
    restored.restore([snapshot])
    assert advance_restored(30) == []
    assert advance_restored(40) == [(0, 1)]
