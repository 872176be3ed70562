"""The client alone: takes all messages of a topic, and reads them in one of three ways.

    python -m benchmarks.topics.client HOST:PORT messages|pyarrow|checked [no-gc]

``messages`` takes the bytes of each message and no more. ``pyarrow`` gives them to ``pyarrow.json``
as they are, which is the least that makes columns of them, and is not safe for messages of others
(``laminar_core/connectors/formats/json_decoding.py``). ``checked`` uses Laminar's decoder. With
``no-gc``, Python collects no garbage: each message is an object, which the collector looks at.
"""

import gc
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.topics.system import DONE
from examples.kafka_to_kafka.topic import PARTITIONS
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Messages
from laminar_core.connectors.kafka.reader import FULL_QUEUE_MS
from laminar_core.jobs.payments import PAYMENT

BATCH = 10_000
_BATCH_SECONDS_MAX = 0.2

Decode = Callable[[Sequence[bytes]], int]


def decoders() -> dict[str, Decode]:
    """Return the ways to read a batch of messages; each returns the number of rows."""
    checked = JsonFormat().decoder(PAYMENT)

    def with_checks(values: Sequence[bytes]) -> int:
        places = pa.array(np.arange(len(values)))
        return checked.decode(Messages(pa.array(values, pa.binary()), places)).rows.num_rows

    return {"messages": len, "pyarrow": _bare, "checked": with_checks}


def _bare(values: Sequence[bytes]) -> int:
    body = pa.py_buffer(b"\n".join(values))
    options = pj.ReadOptions(use_threads=False, block_size=body.size + 1)
    columns = pj.ParseOptions(explicit_schema=PAYMENT)
    return pj.read_json(body, read_options=options, parse_options=columns).num_rows


def read(bootstrap: str, topic: str, decode: Decode) -> int:
    """Read all committed messages of a topic, with the settings that a source has."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.queue.backoff.ms": FULL_QUEUE_MS,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows = ends = 0
    while ends < PARTITIONS:
        messages = consumer.consume(BATCH, _BATCH_SECONDS_MAX)
        errors = [error for message in messages if (error := message.error()) is not None]
        ends += sum(error.code() == KafkaError._PARTITION_EOF for error in errors)  # noqa: SLF001
        values = [message.value() or b"" for message in messages if message.error() is None]
        rows += decode(values) if values else 0
    consumer.close()
    return rows


def main(bootstrap: str, how: str, collector: str = "gc") -> None:
    """Read the topic that each line of the input names first."""
    if collector == "no-gc":
        gc.disable()
    decode = decoders()[how]
    for line in sys.stdin:
        read(bootstrap, line.split()[0], decode)
        print(DONE, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main(*sys.argv[1:])
