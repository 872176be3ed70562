"""Messages into rows and rows into messages, by format, in CPU time of one process."""

from collections.abc import Callable, Iterator
from io import BytesIO
from time import process_time

import numpy as np
import pyarrow as pa

from benchmarks.result import Result
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.line_blocks import LineReader
from laminar_core.connectors.formats.messages import Decoder, Encoder, Messages
from laminar_core.connectors.formats.raw import RawFormat

ROWS = 50_000
MERCHANTS = 12_000
REPEATS = 3
BAD_EVERY = 100
BAD_ROWS = 5_000
FIRST_US = 1_767_225_600_000_000


def formats() -> list[Result]:
    """Decode and encode payments of four columns, as JSON, CSV, Arrow IPC and bytes."""
    return [*_decoding(), *_encoding(), *_bad_messages(), *_lines()]


def _decoding() -> Iterator[Result]:
    rows = _payments()
    json = JsonFormat().encoder(rows.schema).encode(rows)
    yield _decoded("json", JsonFormat().decoder(rows.schema), json)
    yield _decoded("csv", CsvFormat().decoder(rows.schema), _csv(rows))
    ipc = ArrowIpcFormat()
    yield _decoded("arrow_ipc", ipc.decoder(rows.schema), ipc.encoder(rows.schema).encode(rows))
    yield _decoded("raw", RawFormat().decoder(pa.schema([("value", pa.binary())])), json)


def _encoding() -> Iterator[Result]:
    rows = _payments()
    yield _encoded("json", JsonFormat().encoder(rows.schema), rows)
    yield _encoded("arrow_ipc", ArrowIpcFormat().encoder(rows.schema), rows)


def _bad_messages() -> Iterator[Result]:
    """Decode JSON with one message in a hundred broken or of another type, and with all broken."""
    rows = _payments()
    decoder = JsonFormat().decoder(rows.schema)
    good = JsonFormat().encoder(rows.schema).encode(rows).to_pylist()
    some = [m[:9] if n % BAD_EVERY == 0 else m for n, m in enumerate(good)]
    yield _decoded("json_1_percent_bad", decoder, pa.array(some))
    other = [
        m.replace(b'"amount":', b'"amount":"x","b":') if n % BAD_EVERY == 0 else m
        for n, m in enumerate(good)
    ]
    yield _decoded("json_1_percent_of_another_type", decoder, pa.array(other))
    all_of_them = [message[:9] for message in good[:BAD_ROWS]]
    yield _decoded("json_all_bad", decoder, pa.array(all_of_them))


def _lines() -> Iterator[Result]:
    rows = _payments()
    data = b"\n".join(JsonFormat().encoder(rows.schema).encode(rows).to_pylist())

    def read() -> None:
        reader = LineReader(BytesIO(data))
        while reader.read(10_000):
            pass

    yield _rate("lines_of_a_file", ROWS, read)


def _decoded(name: str, decoder: Decoder, values: pa.Array) -> Result:
    messages = Messages(values, pa.array(np.arange(len(values))))
    rows = max(len(values), decoder.decode(messages).rows.num_rows)
    return _rate(f"decode_{name}", rows, lambda: decoder.decode(messages))


def _encoded(name: str, encoder: Encoder, rows: pa.RecordBatch) -> Result:
    return _rate(f"encode_{name}", rows.num_rows, lambda: encoder.encode(rows))


def _rate(name: str, rows: int, action: Callable[[], object]) -> Result:
    """Rows per second of CPU, after one call that does not count."""
    action()
    rates = [rows / cpu_s for cpu_s in _cpu_s(action)]
    return Result.of_rounds(name, rates, "rows/s of CPU", "higher")


def _cpu_s(action: Callable[[], object]) -> Iterator[float]:
    for _ in range(REPEATS):
        started = process_time()
        action()
        yield process_time() - started


def _csv(rows: pa.RecordBatch) -> pa.Array:
    columns = [column.cast(pa.string()).to_pylist() for column in rows.columns]
    return pa.array([",".join(values).encode() for values in zip(*columns, strict=True)])


def _payments() -> pa.RecordBatch:
    numbers = np.arange(ROWS)
    return pa.record_batch(
        {
            "id": pa.array(numbers),
            "merchant": pa.array([f"merchant-{n % MERCHANTS}" for n in range(ROWS)]),
            "amount": pa.array(7 * numbers % 1_000),
            "paid_at": pa.array(FIRST_US + 1_000_000 * numbers).cast(pa.timestamp("us")),
        }
    )
