"""Rows into JSON: valid for any parser, and read back as the same rows."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Messages
from laminar_core.errors import DataError, ErrorCode
from tests.connectors.formats.adversarial import no_lists_at_an_offset

INNER = pa.struct([("a", pa.int8()), ('q"', pa.list_(pa.struct([("x", pa.string())])))])
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("é\n", pa.dictionary(pa.int32(), pa.string())),
        ("d", pa.decimal128(38, 20)),
        ("t", pa.timestamp("us")),
        ("z", pa.timestamp("ms", "Europe/Berlin")),
        ("y", pa.date32()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int32())),
        ("w", pa.large_list(pa.large_string())),
        ("r", INNER),
        ("v", pa.string_view()),
    ]
)
FORMAT = JsonFormat()
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ['"', "\\u0000", "]},\x1f"]
)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
ZONED = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ROW = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**63), 2**63 - 1),
        "u": st.integers(0, 2**64 - 1),
        "f": st.floats(allow_nan=False, allow_infinity=False),
        "g": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "s": TEXT,
        "é\n": TEXT,
        "d": st.decimals(Decimal(-(10**17)), Decimal(10**17), places=20),
        "t": st.datetimes(FIRST, LAST),
        "z": ZONED.map(lambda t: t.replace(microsecond=1000 * (t.microsecond // 1000))),
        "y": st.dates(),
        "b": st.booleans(),
        "l": st.none() | st.lists(st.none() | INT32, max_size=3),
        "w": st.lists(st.none() | TEXT, max_size=3),
        "r": st.fixed_dictionaries(
            {"a": st.none() | st.integers(-128, 127)},
            optional={'q"': st.lists(st.none() | st.fixed_dictionaries({"x": TEXT}), max_size=2)},
        ),
        "v": TEXT,
    },
)


def round_trip(rows: pa.RecordBatch) -> pa.RecordBatch:
    encoded = FORMAT.encoder(rows.schema).encode(rows)
    for message in encoded.to_pylist():
        json.loads(message)
        assert b"\n" not in message
    decoded = FORMAT.decoder(rows.schema).decode(Messages(encoded, pa.array(range(len(encoded)))))
    assert decoded.letters.to_pylist() == []
    return decoded.rows


@given(st.lists(ROW, max_size=5), st.integers(0, 3))
def test_rows_come_back_as_they_were(rows: list[dict[str, object]], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).slice(skipped)
    assert repr(round_trip(batch).to_pylist()) == repr(batch.to_pylist())


def test_a_row_reads_as_a_person_would_write_it() -> None:
    row = {"id": 7, "who": 'a "b"\n', "paid": datetime(2026, 1, 1, tzinfo=UTC), "tags": ["x", None]}
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("who", pa.string()),
            ("paid", pa.timestamp("ms", "Europe/Berlin")),
            ("on", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("amount", pa.decimal128(9, 2)),
        ]
    )
    batch = pa.RecordBatch.from_pylist(
        [{**row, "on": date(2026, 1, 2), "amount": Decimal("1.50")}], schema=schema
    )
    written = (
        b'{"id":7,"who":"a \\"b\\"\\u000a","paid":"2026-01-01T00:00:00.000Z","on":"2026-01-02",'
        b'"tags":["x",null],"amount":1.50}'
    )
    assert FORMAT.encoder(schema).encode(batch).to_pylist() == [written]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_no_form_for_is_refused_by_name(value: float) -> None:
    schema = pa.schema([("s", pa.struct([("f", pa.float32())]))])
    batch = pa.RecordBatch.from_pylist([{"s": {"f": 1.0}}, {"s": {"f": value}}], schema=schema)
    with pytest.raises(DataError, match=r"^s\.f is NaN or infinite") as caught:
        FORMAT.encoder(schema).encode(batch)
    assert caught.value.code is ErrorCode.NOT_ENCODABLE


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (pa.timestamp("us"), 253_402_300_800_000_000),
        (pa.timestamp("s"), -62_167_219_201),
        (pa.timestamp("us"), 2**62),
        (pa.timestamp("s", "America/New_York"), 253_402_300_800),
        (pa.timestamp("s", "Europe/Berlin"), -62_167_219_201),
        (pa.date32(), 2_932_897),
        (pa.date64(), -86_400_000 * 719_529),
    ],
    ids=str,
)
def test_a_year_that_iso_8601_has_no_form_for_is_refused(wanted: pa.DataType, value: int) -> None:
    batch = pa.record_batch({"t": pa.array([None, value], pa.int64()).cast(pa.int64())})
    integers = pa.int32() if pa.types.is_date32(wanted) else pa.int64()
    batch = pa.record_batch({"t": batch.column("t").cast(integers).view(wanted)})
    with pytest.raises(DataError, match="t has a year that is not between 0 and 9999"):
        FORMAT.encoder(batch.schema).encode(batch)


@pytest.mark.parametrize("zone", [None, "America/New_York", "Europe/Berlin"])
def test_the_first_and_the_last_moment_come_back(zone: str | None) -> None:
    moments = pa.array([-62_167_219_200_000_000, 253_402_300_799_999_999, None], pa.int64())
    batch = pa.record_batch({"t": moments.view(pa.timestamp("us", zone))})
    assert round_trip(batch).equals(batch)


def test_no_rows_are_no_messages() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert round_trip(batch).num_rows == 0


def test_lists_that_are_not_there_may_begin_anywhere() -> None:
    rows = pa.record_batch({"a": no_lists_at_an_offset()})
    assert FORMAT.encoder(rows.schema).encode(rows).to_pylist() == [b'{"a":[]}']
