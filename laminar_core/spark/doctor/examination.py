"""Examine a cluster from its driver: Spark's conditions, then one short barrier job."""

# PySpark's RDDs and its pickler have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import platform
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock
from laminar_core.link.addresses import TransportKind
from laminar_core.link.transport import CoordinatorTransport
from laminar_core.objectstore.opening import open_object_store, probe
from laminar_core.plan.plan import Plan as Pipeline
from laminar_core.spark.conditions import SparkFacts, refuse_unsuitable, unprotected
from laminar_core.spark.doctor import task
from laminar_core.spark.doctor.facts import HostFacts, Request
from laminar_core.spark.doctor.findings import CHECKS, Driver, Finding, Plan, findings_of, with_ok
from laminar_core.spark.doctor.joint import (
    DRIVER,
    delete_tokens,
    digest_of,
    sink_token,
    write_token,
)
from laminar_core.spark.doctor.links import Answering
from laminar_core.spark.failures import reason_of
from laminar_core.spark.stage import facts_of, slots_of

TASKS_MAX = 100
"""Slots that are examined: enough for every host of most clusters."""

_LOOK_EVERY_MS = 500


@dataclass(frozen=True, slots=True)
class Paths:
    """Directories and files that a job reads and writes on file systems of its hosts."""

    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Paths":
        """Return the paths of a pipeline; URLs are left out, because no host mounts them."""
        sources = (v.source.source for v in pipeline.vertices if v.source is not None)
        sinks = (v.sink.sink for v in pipeline.vertices if v.sink is not None)
        return cls(tuple(_paths_of(sources)), tuple(_paths_of(sinks)))


def _paths_of(connectors: Iterator[object]) -> Iterator[str]:
    for each in connectors:
        path = getattr(each, "path", None)
        if isinstance(path, str) and "://" not in path:
            yield path


@dataclass(frozen=True, slots=True)
class Examination:
    """Examines a cluster for one job."""

    plan: Plan
    store_uri: str | None = None
    paths: Paths = Paths()
    transport: str = "auto"
    wait_ms: float = 30_000
    """How long to wait for as many task slots as there are workers."""

    def run(self, spark: SparkSession, clock: Clock) -> list[Finding]:
        """Examine; what cannot be examined is a finding, not an error."""
        try:
            facts = facts_of(spark)
            refuse_unsuitable(facts, self.plan.workers)
        except LaminarError as error:
            return [Finding("Spark", "", "failed", str(error))]
        found = [*_settings(facts, self.transport)]
        slots = self._slots(spark, clock)
        found.append(_slots_finding(slots, self.plan.workers, facts))
        if not slots:
            return found
        store_findings = [*self._store()]
        usable = replace(self, store_uri=None) if store_findings else self
        found += store_findings
        try:
            hosts, driver = usable.hosts(spark, facts, min(slots, TASKS_MAX), clock)
        except LaminarError as error:
            return [*found, Finding("network", "driver", "failed", str(error))]
        except Exception as error:  # noqa: BLE001 - whatever Spark says of its tasks
            advice = "see the executors' log; on another Python, set PYSPARK_PYTHON"
            return [*found, Finding("tasks", "", "failed", reason_of(error), advice)]
        found.append(Finding("tasks", "", "ok", _ran(hosts)))
        return [*found, *with_ok(findings_of(hosts, driver, self.plan), usable.checked(hosts))]

    def _slots(self, spark: SparkSession, clock: Clock) -> int:
        """Wait for the slots; return how many there are in the end."""
        until_ms = clock.monotonic_ms() + self.wait_ms
        while (slots := slots_of(spark) or 0) < self.plan.workers:
            if clock.monotonic_ms() >= until_ms:
                break
            clock.wait_ms(_LOOK_EVERY_MS)
        return slots

    def _store(self) -> Iterator[Finding]:
        """Try the store out from the driver, as a start does."""
        if self.store_uri is None:
            return
        try:
            objects = open_object_store(self.store_uri)
            objects.create()
            probe(objects)
        except LaminarError as error:
            yield Finding("store", "driver", "failed", str(error))

    def hosts(
        self, spark: SparkSession, facts: SparkFacts, tasks: int, clock: Clock
    ) -> tuple[list[HostFacts], Driver]:
        """Run the job; return what its tasks and the driver report."""
        kind: Any = self.transport
        if kind == "auto":
            kind = "ipc" if facts.on_one_host else "curve"
        transport_kind: TransportKind = kind
        host = str(spark.conf.get("spark.driver.host"))
        transport = CoordinatorTransport(transport_kind, host, tasks)
        with closing(Answering(transport, clock)):
            request = Request(
                run_id=secrets.token_hex(4),
                tasks=tasks,
                address=transport.address,
                store_uri=self.store_uri,
                source_paths=self.paths.sources,
                sink_paths=self.paths.sinks,
            )
            try:
                return _run_job(spark, request), self._driver(request)
            except BaseException:
                for number in range(tasks):  # Tasks that were killed have not deleted theirs.
                    delete_tokens(request, str(number))
                raise
            finally:
                delete_tokens(request, DRIVER)

    def _driver(self, request: Request) -> Driver:
        digests: dict[str, str | None] = {}
        for path in request.source_paths:
            digests[path] = None
            with suppress(OSError):
                digests[path] = digest_of(path)
        return Driver(platform.python_version(), task.versions(), digests)

    def checked(self, hosts: Sequence[HostFacts]) -> list[str]:
        """Return the checks that were made."""
        if any(each.joint is None for each in hosts):
            return ["versions"]
        left_out = {"store"} if self.store_uri is None else set[str]()
        if not (self.paths.sources or self.paths.sinks):
            left_out.add("path")
        return [check for check in CHECKS if check not in left_out]


def _run_job(spark: SparkSession, request: Request) -> list[HostFacts]:
    """Run the barrier job.

    It uses an RDD: its tasks need neither Arrow nor pandas, so that a host without them can say so.
    """
    write_token(request, DRIVER)
    for path in request.sink_paths:
        with suppress(OSError):
            sink_token(request, path, DRIVER).write_bytes(b"")
    cloudpickle.register_pickle_by_value(task)
    try:
        function = task.task_for(cloudpickle.dumps(request))
        rows: Any = spark.sparkContext.parallelize(range(request.tasks), request.tasks)
        answers: list[str] = rows.barrier().mapPartitions(function).collect()
    finally:
        cloudpickle.unregister_pickle_by_value(task)
    return [HostFacts.model_validate(json.loads(answer), strict=False) for answer in answers]


def _settings(facts: SparkFacts, transport: str) -> Iterator[Finding]:
    yield Finding("Spark", "", "ok", f"{facts.master} can run barrier stages")
    missing = unprotected(facts) if transport != "tcp" else ()
    if missing:
        yield Finding(
            "encryption", "", "warning", "Spark sends the workers' key unencrypted",
            f"set {' and '.join(missing)} to true (docs/security.md)",
        )  # fmt: skip
    if transport == "tcp" and not facts.on_one_host:
        yield Finding("encryption", "", "warning", "--transport tcp does not encrypt rows")


def _slots_finding(slots: int, workers: int, facts: SparkFacts) -> Finding:
    detail = f"{slots} for {workers} workers"
    if slots >= workers:
        return Finding("task slots", "", "ok", detail)
    advice = "give the job more executors; another application may hold their cores"
    if not slots:
        advice += ", or they cannot reach the driver at spark.driver.host"
    return Finding("task slots", facts.master, "failed", detail, advice)


def _ran(hosts: Sequence[HostFacts]) -> str:
    names = list(dict.fromkeys(each.host for each in hosts))
    return f"{len(hosts)} on {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}"  # noqa: PLR2004
