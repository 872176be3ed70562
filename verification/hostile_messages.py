"""Hostile messages, drawn by seed, and a judgement of what a decoder makes of them.

A batch has valid messages, messages made of the pieces that wrappers and parsers are made of, valid
ones with a few bytes changed, and noise. A decoder has to accept each message or write one letter
for it, give rows of its schema, and do to each message in the batch what it does to it alone.
"""

from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa

from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.avro_encoding import avro_schema, canonical
from laminar_core.connectors.formats.avro_format import AvroFormat
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Decoder, Messages
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.connectors.formats.schema_registry import KnownSchemas

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("f", pa.float32()),
        ("d", pa.decimal128(20, 4)),
        ("t", pa.timestamp("us")),
        ("k", pa.dictionary(pa.int32(), pa.string())),
    ]
)
NESTED = pa.schema(
    [*SCHEMA, ("l", pa.list_(pa.int32())), ("s", pa.struct([("x", pa.int8()), ("y", pa.date32())]))]
)
TEXT = pa.schema([("value", pa.string())])
BATCH_MAX = 8

_JSON_PIECES = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\n",
        b" ",
        b"\x00",
        b"\xff",
        b"null",
        b"true",
    ),
    *(
        b"NaN",
        b"-Infinity",
        b"1e400",
        b"1.0",
        b"-0",
        b"99999999999999999999",
        b'"id":',
        b'"v":',
        b'"m":',
    ),
    *(
        b'"s":{"x":1}',
        b'"l":[1,null]',
        b']}\n{"m":[',
        b"]}",
        b'{"m":[',
        b'{"id":1}',
        b'{"id":2},',
        b"{}",
    ),
    *(
        b'"u":[[[',
        b"]]]",
        b'"\\ud800"',
        b'"\\u0000"',
        b"\xef\xbb\xbf",
        b"/*",
        b"*/",
        b'{"id":1}],"x":[{}',
    ),
)
_CSV_PIECES = (
    *(
        b",",
        b'"',
        b'""',
        b"\n",
        b"\r",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"1",
        b"a",
        b"1.5",
        b"nan",
        b" ",
    ),
    *(
        b",,,,,",
        b'","',
        b"2026-01-01T00:00:00",
        b"99999999999999999999",
        b'1,"a',
        b'x"y',
        b"\\",
        b"0x1",
    ),
)
_NOISE = (b"", b" ", b"oops", b"\x00", b"\xff\xff\xff\xff")
_BYTES = (0, 1, 127, 128, 255)

_AVRO = AvroFormat(KnownSchemas({1: canonical(avro_schema(NESTED, "row"))}), subject="t")

Draw = Callable[[Random], bytes | None]


def decoders() -> dict[str, tuple[Decoder, Draw]]:
    """Return each decoder with what draws messages for it, by name."""
    lines, ignoring, refusing = CsvFormat(), JsonFormat(), JsonFormat(unknown_fields="refuse")
    return {
        "json": (ignoring.decoder(NESTED), _json),
        "json, unknown fields refused": (refusing.decoder(NESTED), _json),
        "csv": (lines.decoder(SCHEMA), _csv),
        "arrow-ipc": (ArrowIpcFormat(message_rows_max=10_000).decoder(NESTED), _ipc),
        "raw": (RawFormat().decoder(TEXT), _json),
        "avro": (_AVRO.decoder(NESTED), _avro),
    }


def draw_batch(random: Random, draw: Draw) -> list[bytes | None]:
    """Draw the messages of one batch."""
    return [draw(random) for _ in range(random.randint(1, BATCH_MAX))]


def problem_of(decoder: Decoder, values: Sequence[bytes | None]) -> str | None:
    """Say what is wrong with what a decoder makes of these messages; None if nothing is."""
    decoded = decoder.decode(_messages(values))
    decoded.rows.validate(full=True)
    bad = decoded.letters.column("index").to_pylist()
    origins = decoded.origins.to_pylist()
    if not decoded.rows.schema.equals(decoder.schema, check_metadata=True):
        return "rows of another schema"
    if len(origins) != decoded.rows.num_rows or origins != sorted(origins):
        return "rows out of the order of their messages"
    if bad != sorted(set(bad)) or not set(bad).isdisjoint(origins):
        return "a message is a row and a letter, or two letters"
    if decoded.letters.column("value").to_pylist() != [values[index] for index in bad]:
        return "a letter of another message"
    rows = decoded.rows.to_pylist()
    for index, value in enumerate(values):
        alone = decoder.decode(_messages([value]))
        mine = [row for row, origin in zip(rows, origins, strict=True) if origin == index]
        if repr(alone.rows.to_pylist()) != repr(mine):
            return f"message {index} is another row alone than in the batch: {value!r}"
        if alone.letters.num_rows != (index in bad):
            return f"message {index} is judged otherwise alone than in the batch: {value!r}"
    return None


def _messages(values: Sequence[bytes | None]) -> Messages:
    return Messages(pa.array(values, pa.binary()), pa.array(range(len(values))))


def _mixed(random: Random, valid: bytes, pieces: Sequence[bytes]) -> bytes | None:
    match random.randrange(8):
        case 0 | 1:
            return valid
        case 2 | 3:
            return b"".join(random.choices(pieces, k=random.randint(1, 9)))
        case 4 | 5:
            return _damaged(random, valid)
        case 6:
            at = random.randrange(len(valid) + 1)
            return valid[:at] + random.choice(pieces) + valid[at:]
        case _:
            return random.choice((None, *_NOISE, valid[: random.randrange(len(valid))]))


def _damaged(random: Random, valid: bytes) -> bytes:
    data = bytearray(valid)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(data))
        flipped = data[at] ^ 1 << random.randrange(8)
        data[at] = random.choice((random.randrange(256), flipped, *_BYTES))
    return bytes(data)


def _rows(random: Random, schema: pa.Schema) -> pa.RecordBatch:
    count, schema_of = random.randint(1, 3), schema
    numbers = [random.randint(-9, 9) for _ in range(count)]
    columns = {
        "id": numbers,
        "v": [random.choice(("", "a", '"]},', "é\n")) for _ in numbers],
        "f": [n / 2 for n in numbers],
        "d": [None for _ in numbers],
        "t": numbers,
        "k": ["k" for _ in numbers],
        "l": [[n, None] for n in numbers],
        "s": [{"x": n, "y": None} for n in numbers],
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema_of]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _json(random: Random) -> bytes | None:
    encoded = JsonFormat().encoder(NESTED).encode(_rows(random, NESTED))
    return _mixed(random, encoded[0].as_py(), _JSON_PIECES)


def _csv(random: Random) -> bytes | None:
    text = random.choice((b"a", b'"a,""b"', b""))
    valid = b"%d,%s,1.5,2.25,2026-01-01T00:00:00,k" % (random.randint(-9, 9), text)
    return _mixed(random, valid, _CSV_PIECES)


def _ipc(random: Random) -> bytes | None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=random.choice((None, "lz4", "zstd")))
    with pa.ipc.new_stream(sink, NESTED, options=options) as stream:
        for _ in range(random.randint(1, 2)):
            stream.write_batch(_rows(random, NESTED))
    return _mixed(random, sink.getvalue().to_pybytes(), _NOISE)


def _avro(random: Random) -> bytes | None:
    written = _AVRO.encoder(NESTED).encode(_rows(random, NESTED)).to_pylist()
    return _mixed(random, written[0] if written else b"\x00\x00\x00\x00\x01", _NOISE)
