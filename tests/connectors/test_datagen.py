"""Generated rows depend on the seed and the row number, and on nothing else."""

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.datagen import (
    Constant,
    DatagenSource,
    EventTime,
    Sequence,
    UniformInt,
    ZipfKey,
    random_bits,
)
from laminar_core.connectors.discovery import first_splits
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.state.splits import at_rows
from tests.connectors.gap_checks import refuse_gaps

FIELDS = {
    "id": Sequence(),
    "key": ZipfKey(50, 1.2, prefix="k-"),
    "rank": ZipfKey(50, 1.2),
    "amount": UniformInt(-5, 5),
    "at": EventTime(start_us=1_000_000, step_us=3, jitter_us=35),
    "kind": Constant("card"),
}


ALL = 1_000_000


def read(source, splits, polls=None, rows_max=ALL):
    """Rows of ``polls`` batches, or of all, and the position afterwards."""
    reader = source.open(splits)
    batches = [b.rows for b in itertools.islice(iter(lambda: reader.poll(rows_max), None), polls)]
    assert all(0 < batch.num_rows <= rows_max for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()], reader.position()


def test_random_bits_are_splitmix64():
    """The first outputs of the reference implementation seeded with 1234567."""
    assert random_bits(np.arange(3), 1234567).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_rows_are_frozen():
    """A change here makes every position in a stored checkpoint point at other rows."""
    rows = DatagenSource(FIELDS, seed=7).rows_between(1_000_000, 1_000_003).to_pylist()
    assert [(row["id"], row["key"], row["amount"], row["at"].microsecond) for row in rows] == [
        (1_000_000, "k-10", 4, 999_996),
        (1_000_001, "k-02", 2, 999_969),
        (1_000_002, "k-16", -1, 999_998),
    ]


@given(
    total=st.integers(0, 300),
    splits=st.integers(1, 7),
    batch_rows=st.integers(1, 50),
    readers=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_any_cutting_of_the_reads_gives_the_same_rows(total, splits, batch_rows, readers, seed):
    """Goal: a row does not depend on splits, batches, readers, or where reading resumed.

    Method: read in rounds; in each round the splits are dealt anew to the readers, each of which
    polls a few times and is then replaced at its position.
    """
    source = DatagenSource(FIELDS, total, splits, batch_rows, seed=seed)
    chance = random.Random(seed)
    position, rows = first_splits(source), []
    while not all(position["done"].to_pylist()):
        order = chance.sample(range(splits), splits)
        parts = [
            position.take(pa.array(order[reader::readers], pa.int64())) for reader in range(readers)
        ]
        results = [
            read(source, part, chance.randint(0, 3), chance.choice([1, 3, ALL]))
            for part in parts
            if part.num_rows
        ]
        rows += [row for read_rows, _ in results for row in read_rows]
        position = pa.concat_tables([after for _, after in results])
    expected = DatagenSource(FIELDS, seed=seed).rows_between(0, total).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == expected


@pytest.mark.parametrize("splits_read", [[0, 1, 2, 3], [1, 3], [2]])
def test_event_time_never_falls_back_further_than_the_jitter(splits_read):
    source = DatagenSource(FIELDS, rows=2_000, splits=4, batch_rows=64)
    rows, _ = read(source, first_splits(source).take(splits_read))
    times = [row["at"].timestamp() * 1e6 for row in rows]
    newest = list(itertools.accumulate(times, max))
    behind = [round(high - time) for high, time in zip(newest, times, strict=True)]
    assert 0 < max(behind) <= 35


def test_fewer_rows_than_splits_are_the_next_ones_of_the_whole_sequence():
    source = DatagenSource({"id": Sequence()}, rows=8, splits=4)
    first, position = read(source, first_splits(source), polls=1, rows_max=3)
    assert [row["id"] for row in first] == [0, 1, 2]
    assert position["rows_read"].to_pylist() == [1, 1, 1, 0]
    rest, _ = read(source, position, rows_max=3)
    assert [row["id"] for row in rest] == [3, 4, 5, 6, 7]


def test_a_split_that_is_behind_catches_up_first():
    source = DatagenSource({"id": Sequence()}, rows=8, splits=2)
    position = at_rows(first_splits(source), np.array([3, 1]))
    assert [row["id"] for row in read(source, position)[0]] == [3, 5, 6, 7]


def test_an_unbounded_source_never_finishes_and_its_position_resumes():
    source = DatagenSource({"id": Sequence()}, splits=2, batch_rows=4)
    rows, position = read(source, first_splits(source), polls=3)
    assert position["rows_total"].null_count == 2
    more, _ = read(source, position, polls=1)
    assert [row["id"] for row in rows + more] == list(range(16))
    assert not source.open(position).finished


def test_a_bounded_source_finishes_with_its_last_row():
    source = DatagenSource({"id": Sequence()}, rows=5, splits=3)
    reader = source.open(first_splits(source))
    assert not reader.finished
    assert reader.poll(ALL).rows.num_rows == 3
    assert reader.poll(ALL).rows.num_rows == 2
    assert reader.finished
    assert reader.poll(ALL) is None


def test_a_position_is_not_changed_by_later_reads():
    source = DatagenSource({"id": Sequence()}, rows=50, splits=2, batch_rows=10)
    reader = source.open(first_splits(source))
    reader.poll(ALL)
    position = reader.position()
    reader.poll(ALL)
    assert position["offset"].to_pylist() == ["5", "5"]


def test_columns_do_not_share_randomness():
    source = DatagenSource({"a": UniformInt(0, 10**9), "b": UniformInt(0, 10**9)})
    batch = source.rows_between(0, 1_000)
    assert len(set(batch["a"].to_pylist()) & set(batch["b"].to_pylist())) < 3


def test_uniform_integers_keep_to_their_bounds_and_are_even():
    values = DatagenSource({"n": UniformInt(-3, 3)}).rows_between(0, 60_000)["n"].to_numpy()
    counts = np.bincount(values + 3, minlength=6)
    assert counts.sum() == 60_000
    assert counts.min() > 9_500


def test_the_widest_range_does_not_overflow():
    field = UniformInt(-(2**63) + 1, 2**63 - 1)
    values = field.column(np.arange(1_000), key=1).to_numpy()
    assert values.min() < -(2**61)
    assert values.max() > 2**61


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.1, 2.0])
def test_zipf_keys_follow_the_law(exponent):
    ranks = ZipfKey(100, exponent).column(np.arange(400_000), key=9).to_numpy()
    weights = np.arange(1, 101.0) ** -exponent
    expected = 400_000 * weights / weights.sum()
    found = np.bincount(ranks, minlength=100)
    chi_square = ((found - expected) ** 2 / expected).sum()
    assert chi_square < 99 + 5 * (2 * 99) ** 0.5


def test_zipf_strings_share_one_dictionary_and_name_the_rank():
    batch = DatagenSource(FIELDS).rows_between(0, 100)
    assert batch.schema.field("key").type == pa.dictionary(pa.int32(), pa.string())
    assert len(batch["key"].dictionary) == 50
    assert batch["key"].to_pylist()[0][:2] == "k-"


def test_the_schema_is_that_of_the_batches():
    source = DatagenSource(FIELDS, rows=10)
    assert source.open(first_splits(source)).poll(ALL).rows.schema == source.schema()


def test_describe_tells_what_the_rows_depend_on():
    described: Any = DatagenSource(FIELDS, rows=10).describe()
    assert described["fields"]["rank"]["exponent"] == 1.2
    assert described != DatagenSource(FIELDS, rows=10, seed=1).describe()
    assert described == DatagenSource(FIELDS, rows=10, batch_rows=1).describe()


@pytest.mark.parametrize("changed", [{"rows": 11}, {"rows": None}, {"splits": 3}])
def test_a_position_of_another_source_is_refused(changed):
    options = {"rows": 10, "splits": 2}
    position = first_splits(DatagenSource(FIELDS, **options))
    refuse_gaps(DatagenSource(FIELDS, **options), position)
    with pytest.raises(IncompatibleStateError, match="set both as they were") as caught:
        refuse_gaps(DatagenSource(FIELDS, **options | changed), position)
    assert "taken with splits=2, rows=10, and the source now has" in str(caught.value)
    assert caught.value.code is ErrorCode.SOURCE_CHANGED


@pytest.mark.parametrize(
    ("generator", "options"),
    [
        (UniformInt, {"low": 3, "high": 3}),
        (UniformInt, {"low": 0, "high": 2**64}),
        (ZipfKey, {"count": 0}),
        (UniformInt, {"low": 0.5, "high": 3}),
        (ZipfKey, {"count": 10, "exponent": float("nan")}),
        (ZipfKey, {"count": 10, "exponent": float("inf")}),
        (ZipfKey, {"count": 10, "exponent": 10**400}),
        (ZipfKey, {"count": 2.5}),
        (ZipfKey, {"count": 10, "prefix": "\ud800"}),
        (Constant, {"value": float("nan")}),
        (Constant, {"value": float("-inf")}),
        (Constant, {"value": 2**63}),
        (Constant, {"value": "\ud800"}),
        (Sequence, {"start": 2**63}),
        (Sequence, {"start": float("nan")}),
        (EventTime, {"start_us": 2**63}),
        (EventTime, {"start_us": 0, "step_us": float("inf")}),
        (EventTime, {"start_us": 0, "jitter_us": 2**63}),
        (EventTime, {"start_us": 0, "step_us": -1}),
        (DatagenSource, {"fields": {}}),
        (DatagenSource, {"fields": {"\ud800": Sequence()}}),
        (DatagenSource, {"fields": FIELDS, "rows": -1}),
        (DatagenSource, {"fields": FIELDS, "rows": 2**63}),
        (DatagenSource, {"fields": FIELDS, "rows": 1.5}),
        (DatagenSource, {"fields": FIELDS, "seed": float("nan")}),
        (DatagenSource, {"fields": {"n": Sequence(2**63 - 2)}, "rows": 3}),
        (DatagenSource, {"fields": {"t": EventTime(0, step_us=2**62)}, "rows": 3}),
        (DatagenSource, {"fields": {"t": EventTime(-(2**62), jitter_us=2**63 - 1)}, "rows": 1}),
        (DatagenSource, {"fields": FIELDS, "splits": 0}),
        (DatagenSource, {"fields": FIELDS, "batch_rows": 0}),
    ],
)
def test_impossible_options_are_refused_at_once(generator, options):
    with pytest.raises(ConfigurationError) as caught:
        generator(**options)
    assert "\n" not in str(caught.value)
    str(caught.value).encode()


def test_numbers_end_where_64_bits_do():
    source = DatagenSource({"n": Sequence(2**63 - 2), "t": EventTime(2**63 - 2)}, rows=2)
    assert source.rows_between(0, 2)["n"].to_pylist() == [2**63 - 2, 2**63 - 1]
    for field in (Sequence(2**63 - 2), EventTime(0, step_us=2**62)):
        with pytest.raises(DataError, match="do not fit into 64 bits") as caught:
            DatagenSource({"n": field}).rows_between(0, 3)
        assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW


@pytest.mark.parametrize("fields", [["id"], {"id": 3}, {"id": Sequence}])
def test_fields_that_are_no_generators_are_refused(fields) -> None:
    with pytest.raises(
        ConfigurationError, match=r"from names to generators|must be a generator such as Sequence"
    ):
        DatagenSource(fields)
