"""Early results of sessions: added up, the rows that come and go are what a plain loop finds.

Histories, cuts and restarts are those of ``test_sessions_model``.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.sessions import PartialSessions, Sessions
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.state import session_state
from tests.operators import test_sessions_model as of_sessions
from tests.operators.test_late_rows import LateSessionJob
from tests.operators.test_sessions import INPUT, MERGING, PARTIAL, combined, moment
from tests.operators.test_sessions import at as context
from tests.operators.test_sessions import rows as rows_at

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
EARLY_US = 10
SECOND = 1_000_000
EARLY = replace(MERGING, early_us=10 * SECOND)


@dataclass
class EarlyModel(of_sessions.Model):
    """Also knows the results of the sessions that were open when early results were due."""

    early: dict[of_sessions.Key, list[of_sessions.Result]] = field(default_factory=dict)
    final: list[of_sessions.Result] = field(default_factory=list)

    def reach(self, watermark_us: int, before_us: int | None, groups: range) -> None:
        fired = self.advance(watermark_us, groups)
        self.final += fired
        is_due = before_us is None or before_us // EARLY_US < watermark_us // EARLY_US
        for key, group in of_sessions.GROUPS.items():
            if group not in groups:
                continue
            if is_due:
                self.early[key] = list(self.open_of(key))
            for row in fired:
                if row[:2] == key:
                    self.early[key] = [old for old in self.early[key] if not covers(row, old)]

    def open_of(self, key: of_sessions.Key):
        for session in self.sessions(key):
            start, end = session[0][0], session[-1][0] + of_sessions.GAP_US
            if (key, start) not in self.emitted:
                yield of_sessions.result(key, start, end, [value for _, value in session])

    def there(self) -> Counter:
        return Counter([*self.final, *(row for rows in self.early.values() for row in rows)])


def covers(session: of_sessions.Result, early: of_sessions.Result) -> bool:
    return session[2] <= early[2] and early[3] <= session[3]


class EarlyHistory(of_sessions.History):
    """One history, whose rows are added up. In every third, late rows travel as they are."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = EarlyModel(self.model.lateness_us)
        if seed % 3 == 0:
            self.job = LateSessionJob(self.model.lateness_us, self.parallelism)
        self.job.spec = replace(self.job.spec, early_us=EARLY_US)
        self.job.start(self.parallelism)
        self.there: Counter = Counter()
        self.taken_back = 0

    def reach(self, watermarks_us: list[int]) -> None:
        for index, watermark_us in enumerate(watermarks_us):
            before_us = self.job.reached_us[index]
            if before_us is not None and watermark_us <= before_us:
                continue
            subtask = self.job.subtasks[index]
            held_us = None if before_us is None else subtask.output_watermark(before_us)
            for row in self.job.advance(index, watermark_us):
                assert held_us is None or row[3] >= held_us, "a row is behind the output watermark"
                self.there[row[:-1]] += row[-1]
                self.taken_back += row[-1] < 0
            self.model.reach(watermark_us, before_us, self.job.groups(index))
            assert {row: n for row, n in self.there.items() if n} == self.model.there()

    def finish(self) -> int:
        """Return how many rows were taken back."""
        assert sorted(self.model.final, key=repr) == sorted(self.there.elements(), key=repr)
        return self.taken_back


@pytest.mark.sampled(10)
@pytest.mark.parametrize("chunk", range(8))
def test_rows_add_up_to_the_models_wherever_the_job_is_cut(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every other history a session is in many runs, and many parts are emitted."""
    taken_back = 0
    for seed in range(chunk * 4, chunk * 4 + 4):
        history = EarlyHistory(seed)
        with monkeypatch.context() as patch:
            if seed % 2:
                patch.setattr(session_state, "_SIZE_RATIO", 0)
                patch.setattr(session_state, "FIRED_KEYS_MAX", 1)
            try:
                history.run(steps=24)
                taken_back += history.finish()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}") from error
    assert taken_back > 6


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chunk", range(4))
def test_one_to_three_to_two_workers_and_chains_of_changes(chunk: int) -> None:
    history = EarlyHistory(chunk)
    history.job.start(1)
    for parallelism in (1, 3, 3, 2, 2):
        for _ in range(3):
            history.add()
            history.advance()
            history.job.cut(full=False, parallelism=None, random=history.random)
        history.add()
        history.job.cut(full=False, parallelism=parallelism, random=history.random)
    history.run(steps=4)
    history.finish()


def emitted(subtask, watermark_s: int) -> list[tuple]:
    """(user, start, end, count, total, weight)."""
    batches = subtask.on_watermark(watermark_s * SECOND)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_two_sessions_that_become_one_are_both_taken_back() -> None:
    subtask = EARLY.open(context(), PARTIAL.output_schema(INPUT))
    list(subtask.process(combined(rows_at(("a", 20, 1), ("a", 35, 2)))))
    first = [("a", moment(20), moment(30), 1, 1), ("a", moment(35), moment(45), 1, 2)]
    assert sorted(emitted(subtask, 10)) == [(*row, 1) for row in first]
    list(subtask.process(combined(rows_at(("a", 27, 4)))))
    assert emitted(subtask, 19) == []
    both = ("a", moment(20), moment(45), 3, 7)
    assert sorted(emitted(subtask, 20)) == sorted([*((*row, -1) for row in first), (*both, 1)])
    assert emitted(subtask, 30) == []
    assert emitted(subtask, 46) == []  # The final result is the early one.


def test_the_table_of_the_document_is_what_is_emitted() -> None:
    section = DOCUMENT.partition("### Early results of sessions\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    hours = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
    minute = 60 * SECOND
    partial = replace(PARTIAL, gap_us=10 * minute, aggregates=(agg.count(name="clicks"),))
    spec = replace(EARLY, gap_us=10 * minute, aggregates=partial.aggregates, early_us=minute)
    subtask = spec.open(context(), partial.output_schema(hours))
    found = []
    for clicks, watermark_us in (([720, 735], 719 * minute), ([728], 720 * minute)):
        lines = [{"user": "a", "ts": at * minute, "v": 1} for at in clicks]
        batch = pa.RecordBatch.from_pylist(lines, schema=hours)
        list(subtask.process(combined(batch, spec=partial)))
        rows = [row for part in subtask.on_watermark(watermark_us) for row in part.to_pylist()]
        for row in sorted(rows, key=lambda row: (row["_weight"] > 0, row["window_start"])):
            bounds = [row[name].strftime("%H:%M") for name in ("window_start", "window_end")]
            found.append([*bounds, str(row["clicks"]), str(row["_weight"])])
    assert found == [row[1:] for row in cells]


def test_a_final_result_takes_the_early_one_back_if_it_differs() -> None:
    subtask = EARLY.open(context(), PARTIAL.output_schema(INPUT))
    list(subtask.process(combined(rows_at(("a", 20, 1)))))
    early = ("a", moment(20), moment(30), 1, 1)
    assert emitted(subtask, 10) == [(*early, 1)]
    list(subtask.process(combined(rows_at(("a", 21, None), ("b", 11, 5)))))
    final = ("a", moment(20), moment(31), 2, 1)
    of_b = ("b", moment(11), moment(21), 1, 5)
    assert emitted(subtask, 32) == [(*early, -1), (*of_b, 1), (*final, 1)]


def test_floats_that_are_equal_take_each_other_back() -> None:
    """NaN and both zeros have one form, so that equal rows have equal bytes."""
    schema = pa.schema([("k", pa.float64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])
    aggregates = (agg.max("v", name="most"),)
    partial = PartialSessions("p", ("k",), "ts", 10, aggregates)
    spec = Sessions("s", ("k",), 10, aggregates, 0, 5)
    subtask = spec.open(SubtaskContext("s", 0, 1, 8, Generation(1)), partial.output_schema(schema))
    combiner, there = partial.open(context(), schema), Counter()
    for turn, (key, value) in enumerate([(-0.0, float("nan")), (0.0, -0.0), (0.0, 1.0)]):
        batch = pa.RecordBatch.from_pylist([{"k": key, "ts": turn, "v": value}], schema=schema)
        for part in combiner.process(batch):
            list(subtask.process(part))
        for found in subtask.on_watermark(5 * turn - 10):
            for row in found.to_pylist():
                there[repr(list(row.values())[:-1])] += row["_weight"]
    for found in subtask.on_watermark(WATERMARK_END_US):
        for row in found.to_pylist():
            there[repr(list(row.values())[:-1])] += row["_weight"]
    assert [n for n in there.values() if n] == [1]


def test_state_is_a_row_and_an_early_result_per_open_session() -> None:
    """Goal: the bound holds for a hundred times as many rows. 10 sessions are open at a time."""
    subtask = EARLY.open(context(), PARTIAL.output_schema(INPUT))
    combiner = PARTIAL.open(context(), INPUT)
    open_max = 10
    for turn in range(100):
        start = turn * 20
        for seconds in (0, 5):
            users = [(f"u{n}", start + seconds + n % 5, n) for n in range(open_max)]
            for part in combiner.process(rows_at(*users)):
                list(subtask.process(part))
        list(subtask.on_watermark(start * SECOND))
        assert subtask.row_count <= 3 * open_max  # Pieces that are merged a logarithm later.
        if turn % 10 == 9:
            kept = list(subtask.snapshot(CheckpointId(1))().tables)
            lists = [n for of in kept for n in of.rows.column("_emitted").to_pylist()]
            assert len(lists) <= 2 * open_max
            assert sum(map(len, lists)) <= 2 * open_max
    emitted(subtask, 10_000)
    assert subtask.row_count == 0


def test_sessions_without_early_results_are_described_as_before() -> None:
    description = MERGING.describe()
    assert EARLY.describe() == {**description, "early_us": 10 * SECOND}
    partial = PARTIAL.output_schema(INPUT)
    stored = MERGING.state_tables(partial)["sessions"]
    assert [*EARLY.state_tables(partial)["sessions"].names] == [*stored.names, "_emitted"]
    assert (MERGING.output_mode, MERGING.updates_by) == ("append", ())
    assert (EARLY.output_mode, EARLY.updates_by) == ("retract", ("user", "window_start"))
    assert EARLY.output_schema(partial).names[-1] == "_weight"


class Values:
    """A user's aggregate whose result is a list."""

    name, state_type, result_type = "values", pa.list_(pa.int64()), pa.list_(pa.int64())

    def init(self) -> list[int]:
        return []

    def accumulate(self, state: list[int], values: pa.Array) -> list[int]:
        return [*state, *values.to_pylist()]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def finish(self, state: list[int]) -> list[int]:
        return state


def test_results_that_cannot_be_compared_and_names_that_are_taken_are_refused() -> None:
    for name in ("_emitted", "key_group"):
        renamed = pa.schema([INPUT.field(0).with_name(name), *list(INPUT)[1:]])
        with pytest.raises(ConfigurationError, match="rename the key column") as caught:
            replace(PARTIAL, keys=(name,)).output_schema(renamed)
        assert caught.value.code is ErrorCode.INVALID_PIPELINE
    ids = replace(EARLY, aggregates=(agg.count(name="_weight"),))
    with pytest.raises(ConfigurationError, match="'_weight', and rows that come and go"):
        ids.output_schema(PARTIAL.output_schema(INPUT))
    listed = replace(PARTIAL, aggregates=(agg.user(Values(), "v", name="values"),))
    spec = replace(EARLY, aggregates=listed.aggregates)
    with pytest.raises(ConfigurationError, match=r"'values' is list<.*: leave it out") as caught:
        spec.output_schema(listed.output_schema(INPUT))
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE


def test_the_watermark_stays_behind_what_can_be_taken_back() -> None:
    subtask = EARLY.open(context(), PARTIAL.output_schema(INPUT))
    list(subtask.process(combined(rows_at(("a", 12, 1)))))
    emitted(subtask, 20)
    assert subtask.output_watermark(20 * SECOND) == 20 * SECOND
    list(subtask.process(combined(rows_at(("a", 21, 1)))))
    emitted(subtask, 29)
    assert subtask.output_watermark(29 * SECOND) == 20 * SECOND
    emitted(subtask, 30)
    assert subtask.output_watermark(30 * SECOND) == 30 * SECOND
