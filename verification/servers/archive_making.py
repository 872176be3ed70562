"""Make what shortens each start of the servers: ``python -m verification.servers.archive_making``.

It starts a broker and a schema registry once, lets clients use them, and ends them in good order:
then Java writes what it has loaded. Whatever is made appears by one rename, whole or not at all.
``make servers`` runs it.
"""

# Futures of confluent-kafka have no types.
# pyright: reportUnknownMemberType=false

import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from laminar_core.connectors.formats.schema_registry import SchemaRegistry
from laminar_core.errors import LaminarError
from laminar_core.spark.jvm import ensure_java
from verification.servers.class_archives import archive_of, archiving_options, formatted_store
from verification.servers.kafka_broker import KafkaBroker, jars_of
from verification.servers.schema_registry_server import SchemaRegistryServer, registry_jars

_ROOT = Path(__file__).parents[2]
_SECONDS_MAX = 60
_TOPIC = "t"


def make_archives(kafka: Path, registry: Path | None) -> None:
    """Make what is missing beside the jars of a broker and of a registry.

    Raises:
        RuntimeError: a server did not start.
        OSError: a folder cannot be written.
    """
    java_home = ensure_java()
    wanted = {"kafka": archive_of("kafka", java_home, kafka)}
    if registry is not None:
        wanted["registry"] = archive_of("registry", java_home, registry)
    if formatted_store(kafka).is_dir() and all(path.is_file() for path in wanted.values()):
        return
    with tempfile.TemporaryDirectory(prefix=".archives-", dir=kafka.parent) as scratch:
        drafts = {program: Path(scratch) / path.name for program, path in wanted.items()}
        _run_once(Path(scratch), drafts, kafka, registry)
        for program, path in wanted.items():
            if drafts[program].is_file():  # Not every Java writes one.
                drafts[program].rename(path)
        if not formatted_store(kafka).is_dir():
            (Path(scratch) / "formatted").rename(formatted_store(kafka))


def _run_once(
    scratch: Path, drafts: Mapping[str, Path], kafka: Path, registry: Path | None
) -> None:
    """Start the servers, use them, and end them."""
    with ExitStack() as servers:
        options = archiving_options(drafts["kafka"])
        broker = KafkaBroker(kafka, scratch / "broker", jvm_options=options)
        broker.format()
        shutil.copytree(broker.store, scratch / "formatted")
        servers.enter_context(broker)
        _use_broker(broker.bootstrap)
        if registry is not None:
            options = archiving_options(drafts["registry"])
            server = SchemaRegistryServer(
                registry, scratch / "registry", broker.bootstrap, jvm_options=options
            )
            servers.enter_context(server)
            SchemaRegistry(server.address).register(_TOPIC, '"int"')
            server.stop()
        broker.stop()


def _use_broker(bootstrap: str) -> None:
    """Write in a transaction and read what was committed."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
    }
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(_SECONDS_MAX)
    producer = Producer({**settings, "transactional.id": _TOPIC})
    producer.init_transactions(_SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"1")
    producer.commit_transaction(_SECONDS_MAX)
    consumer = Consumer({**settings, "group.id": _TOPIC})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    consumer.consume(1, _SECONDS_MAX)
    consumer.commit(asynchronous=False)
    consumer.close()


def _main() -> int:
    kafka = jars_of(_ROOT)
    if kafka is None:
        return 0
    try:
        make_archives(kafka, registry_jars(_ROOT))
    except (RuntimeError, OSError, LaminarError) as error:
        print(f"servers: they start without archives of classes: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
