"""CSV into rows: each line for itself, whatever quotes it opens."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laminar_core.connectors.formats import csv_lines
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.messages import Defect
from laminar_core.errors import ConfigurationError
from tests.connectors.formats.adversarial import check_invariants, messages

SCHEMA = pa.schema([("v", pa.string()), ("id", pa.int64())])
DECODER = CsvFormat().decoder(SCHEMA)
PIECES = (
    *(b"a,1", b"", b",", b'"', b'"a,1', b'a",1', b'"a"b,1', b'5" pipe,1', b'x"y,"5', b'"a""b",1'),
    *(
        b"\n",
        b"\r",
        b"a,1\n",
        b"a,1\nb,2",
        b"\xef\xbb\xbfa,1",
        b"\xff,1",
        b"a,x",
        b"a,1.0",
        b"a, 1",
    ),
    *(
        b"a",
        b"a,1,2",
        b'"",1',
        b'a,""',
        b'a,"1"',
        b"a\x00,1",
        b"a,99999999999999999999",
        b'"a,1","',
    ),
    *(b'","', b"a\\,1"),
)
LINE = st.one_of(
    st.sampled_from(PIECES),
    st.lists(st.sampled_from(PIECES), min_size=2, max_size=3).map(b"".join),
    st.binary(max_size=6),
    st.none(),
)
ROW = st.tuples(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(LINE, max_size=6))
@example([b'a,"', b'b",2'])  # Joined, they are one row.
@example([b'x"y,"5'])  # The quote that is left open swallows what is behind it.
@example([b"\xef\xbb\xbfa,1", b"\xef\xbb\xbfb,1"])  # The parser removes the first mark only.
def test_a_line_depends_on_its_own_bytes_alone(values: list[bytes | None]) -> None:
    check_invariants(DECODER, values)


@given(st.lists(ROW, max_size=5), st.sampled_from(",;|\t"))
def test_a_text_in_quotes_is_any_text(rows: list[tuple[str, int | None]], delimiter: str) -> None:
    decoder = CsvFormat(delimiter=delimiter).decoder(SCHEMA)
    lines = [
        '"{}"{}{}'.format(text.replace('"', '""'), delimiter, "" if number is None else number)
        for text, number in rows
    ]
    decoded = decoder.decode(messages([line.encode() for line in lines]))
    assert decoded.letters.to_pylist() == []
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == rows


@pytest.mark.parametrize(
    ("line", "defect", "reason"),
    [
        (b"a", Defect.NOT_A_ROW, "1 values instead of 2"),
        (b"", Defect.NOT_A_ROW, "1 values instead of 2"),
        (b'"a","b",3', Defect.NOT_A_ROW, "3 values instead of 2"),
        (b"a,1\nb,2", Defect.NOT_A_ROW, "a line break inside of the message"),
        (b"a,1\r", Defect.NOT_A_ROW, "a line break inside of the message"),
        (b"a,x", Defect.WRONG_TYPE, "column id: 'x' does not fit int64"),
        (
            b"name,id",
            Defect.WRONG_TYPE,
            "column id: 'id' does not fit int64; is it the header? FileSource takes header=True",
        ),
        (b'a,"1.5"', Defect.WRONG_TYPE, "column id: '1.5' does not fit int64"),
        (b"\xff,1", Defect.NOT_UTF8, "not UTF-8: invalid start byte at byte 0"),
        (b'a,"1', Defect.MALFORMED, "not CSV: unexpected end of data"),
    ],
)
def test_a_letter_says_in_one_line_what_is_wrong(line: bytes, defect: Defect, reason: str) -> None:
    (letter,) = DECODER.decode(messages([line])).letters.to_pylist()
    assert (letter["defect"], letter["reason"]) == (defect, reason)


def test_columns_of_the_lines_are_taken_by_name_and_others_are_skipped() -> None:
    decoder = CsvFormat(columns=["id", "noise", "v"]).decoder(SCHEMA)
    decoded = check_invariants(decoder, [b"1,\xff,a", b"2,,", b"3"])
    assert decoded.rows.to_pylist() == [{"v": "a", "id": 1}, {"v": None, "id": 2}]


def test_null_is_what_the_options_say_and_never_what_is_quoted() -> None:
    lines = [b"NULL,NULL", b'"NULL",1', b",2"]
    decoded = check_invariants(CsvFormat(null_text="NULL").decoder(SCHEMA), lines)
    assert decoded.rows.column("v").to_pylist() == [None, "NULL", ""]
    decoded = check_invariants(DECODER, [b'"",1', b",1", b"NULL,2"])
    assert decoded.rows.column("v").to_pylist() == ["", None, "NULL"]


def test_a_column_that_must_have_values_is_missed() -> None:
    decoder = CsvFormat().decoder(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    decoded = check_invariants(decoder, [b"1", b"", b"2"])
    assert decoded.rows.column("id").to_pylist() == [1, 2]
    assert decoded.letters.column("defect").to_pylist() == [Defect.MISSING_VALUE]


TYPES = [
    (pa.bool_(), b"true", True),
    (pa.uint8(), b"255", 255),
    (pa.float64(), b"-1.5e3", -1500.0),
    (pa.decimal128(9, 2), b"1.25", Decimal("1.25")),
    (pa.date32(), b"2026-01-31", date(2026, 1, 31)),
    (pa.timestamp("us"), b"2026-01-01T00:00:00.5", datetime.fromisoformat("2026-01-01T00:00:00.5")),
    (pa.timestamp("ms", "UTC"), b"2026-01-01T01:00:00+01:00", datetime(2026, 1, 1, tzinfo=UTC)),
    (pa.dictionary(pa.int32(), pa.string()), b"a", "a"),
    (pa.large_string(), b"a", "a"),
    (pa.binary(), b"\xff", b"\xff"),
]


@pytest.mark.parametrize(("wanted", "text", "value"), TYPES, ids=[str(row[0]) for row in TYPES])
def test_every_type_that_csv_has_a_form_for(
    wanted: pa.DataType, text: bytes, value: object
) -> None:
    decoder = CsvFormat().decoder(pa.schema([("a", wanted)]))
    decoded = check_invariants(decoder, [text, b"", text])
    assert decoded.rows.column("a").to_pylist() == [value, None, value]


@pytest.mark.parametrize(
    "wanted", [pa.list_(pa.int64()), pa.struct([]), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_a_type_without_a_form_in_csv_is_refused_before_the_first_line(wanted: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match=r"^a: CSV has no form for"):
        CsvFormat().decoder(pa.schema([("a", wanted)]))


def test_options_that_make_no_sense_are_refused() -> None:
    for delimiter in ("", "ab", "é", '"', "\n"):
        with pytest.raises(ConfigurationError, match="one ASCII character"):
            CsvFormat(delimiter=delimiter)
    with pytest.raises(ConfigurationError, match="null_text"):
        CsvFormat(null_text="a,b")
    with pytest.raises(ConfigurationError, match="no column id among v, w"):
        CsvFormat(columns=["v", "w"]).decoder(SCHEMA)
    for columns in (["v", "id", "id"], ["v", "id", "x", "x"]):
        with pytest.raises(ConfigurationError, match="each needs one of its own"):
            CsvFormat(columns=columns).decoder(SCHEMA)


def test_what_changes_how_lines_are_read_is_in_the_description() -> None:
    formats = [CsvFormat(), CsvFormat(["v"]), CsvFormat(delimiter=";"), CsvFormat(null_text="NULL")]
    descriptions = [f.describe() for f in formats]
    assert all(descriptions.count(description) == 1 for description in descriptions)


def test_few_bad_lines_are_told_apart_in_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: lines with too few values, or with a text for a number, are found at a quick look."""
    reads = list[int]()
    read = csv_lines._CsvReader.read

    def counted(self: csv_lines._CsvReader, values: pa.BinaryArray) -> pa.RecordBatch:
        reads.append(len(values))
        return read(self, values)

    monkeypatch.setattr(csv_lines._CsvReader, "read", counted)
    lines: list[bytes | None] = [f'"{n}",{n}'.encode() for n in range(500)] + [
        f"{n},{n}".encode() for n in range(500)
    ]
    lines[600], lines[700], lines[800] = b"alone", b"a,b", b"a,"
    schema = pa.schema([("name", pa.string()), ("id", pa.int64())])
    decoded = CsvFormat().decoder(schema).decode(messages(lines))
    assert decoded.letters.column("defect").to_pylist() == ["not-a-row", "wrong-type"]
    assert decoded.rows.num_rows == 998
    assert [count for count in reads if count > 1] == [1_000, 998]


@pytest.mark.parametrize("of", [pa.float32(), pa.dictionary(pa.int32(), pa.float64())], ids=str)
def test_a_number_that_is_too_large_is_a_letter_and_infinity_is_a_value(of: pa.DataType) -> None:
    decoder = CsvFormat(columns=["s", "x"]).decoder(pa.schema([("x", of), ("s", pa.string())]))
    lines = [b"a1,inf", b"b,1e999", b"9,-INFINITY", b'c,"-1e999"', b"d,1e5", b"e,", b"f,nan"]
    decoded = check_invariants(decoder, lines)
    assert decoded.rows.column("s").to_pylist() == ["a1", "9", "d", "e", "f"]
    assert repr(decoded.rows.column("x").to_pylist()) == "[inf, -inf, 100000.0, None, nan]"
    why = f"column x: a number is too large for {of}"
    assert decoded.letters.column("reason").to_pylist() == [why, why]
