"""In-flight data to bytes and back, and how that compares with the targets of the design document.

The document's targets are for Rust: 1 MB in less than 5 ms, more than 200 MB/s; 10,000 events read
back in less than 50 ms. Ours are five times and ten times as strict.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from benchmarks.result import Result, median_seconds
from laminar_core.codec.digest import sha256_hex
from laminar_core.codec.inflight import InflightElement, InflightEncoder, decode, join
from laminar_core.protocol.types import Batch, Watermark

EVENTS = 10_000
BATCH_EVENTS = 1_000
LARGE_BATCH_EVENTS = 131_072
LARGE_BATCHES = 8
TARGET_GB_PER_S = 1.0
DOCUMENT_GB_PER_S = 0.2
DOCUMENT_SERIALIZE_MS = 5.0
TARGET_DECODE_MS = 5.0
DOCUMENT_RECOVERY_MS = 50.0
_REPEATS = 200
_LARGE_REPEATS = 7


def bench_inflight_serialize_1mb() -> list[Result]:
    """10,000 captured events (1 MB) to checksummed pieces of a file; then 100 MB of them."""
    small, large = captured(EVENTS, BATCH_EVENTS), captured(LARGE_BATCHES * LARGE_BATCH_EVENTS)
    pieces = _encode(small)
    size_bytes = sum(len(piece) for piece in pieces)
    large_bytes = sum(len(piece) for piece in _encode(large))
    seconds = median_seconds(lambda: _encode(small), _REPEATS)
    large_seconds = median_seconds(lambda: _encode(large), _LARGE_REPEATS)
    stored_seconds = median_seconds(lambda: _as_stored(small), _REPEATS)
    name = "bench_inflight_serialize_1mb"
    return [
        Result(name, 1e3 * seconds, "ms", "lower", DOCUMENT_SERIALIZE_MS),
        _rate(f"{name}_rate", size_bytes, seconds),
        _rate(f"{name}_rate_100mb", large_bytes, large_seconds),
        Result(f"{name}_with_sha256", size_bytes / stored_seconds / 1e9, "GB/s", "higher"),
        _ratio(f"{name}_ratio", size_bytes / seconds / 1e9 / DOCUMENT_GB_PER_S),
    ]


def bench_unaligned_recovery_10k_inflight() -> list[Result]:
    """10,000 events from the bytes of a file, verified, to the elements of a queue."""
    elements = captured(EVENTS, BATCH_EVENTS)
    data, schema = join(_encode(elements)), _schema(elements)
    milliseconds = 1e3 * median_seconds(lambda: decode(data, schema), _REPEATS)
    name = "bench_unaligned_recovery_10k_inflight_decode"
    return [
        Result(name, milliseconds, "ms", "lower", TARGET_DECODE_MS),
        _ratio(f"{name}_ratio", DOCUMENT_RECOVERY_MS / milliseconds),
    ]


def captured(events: int, batch_events: int = LARGE_BATCH_EVENTS) -> list[InflightElement]:
    """Events of about 100 bytes, as batches with a watermark behind each."""
    random = np.random.default_rng(7)
    merchants = pa.array([f"merchant-{n:05d}" for n in range(500)])
    note = "n" * 70
    elements: list[InflightElement] = []
    for first in range(0, events, batch_events):
        codes = pa.array(random.integers(0, len(merchants), batch_events, np.int32))
        elements.append(
            Batch(
                pa.RecordBatch.from_arrays(
                    [
                        pa.DictionaryArray.from_arrays(codes, merchants),
                        pa.array(random.integers(1, 100_000, batch_events)),
                        pa.array(np.arange(first, first + batch_events)).cast(pa.timestamp("us")),
                        pa.repeat(note, batch_events),
                    ],
                    names=["merchant", "amount", "ts", "note"],
                )
            )
        )
        elements.append(Watermark(first))
    return elements


def _encode(elements: Sequence[InflightElement]) -> list[bytes | pa.Buffer]:
    encoder = InflightEncoder(_schema(elements), 0)
    for element in elements:
        encoder.add(element)
    return encoder.finish()


def _as_stored(elements: Sequence[InflightElement]) -> str:
    """All that happens to the bytes until they are written: one buffer, and its digest."""
    return sha256_hex(memoryview(join(_encode(elements))).cast("B"))


def _schema(elements: Sequence[InflightElement]) -> pa.Schema:
    return next(element.data.schema for element in elements if isinstance(element, Batch))


def _rate(name: str, size_bytes: int, seconds: float) -> Result:
    return Result(name, size_bytes / seconds / 1e9, "GB/s", "higher", TARGET_GB_PER_S)


def _ratio(name: str, value: float) -> Result:
    """How many times as fast as the document asks of Rust."""
    return Result(name, value, "x", "higher", 1.0)


ALL = (bench_inflight_serialize_1mb, bench_unaligned_recovery_10k_inflight)
"""Named as in the design document."""
