"""The job that reports what a stream's checkpoints cost."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from laminar_core.host.clock import Clock
from laminar_core.objectstore.contract import counts_of
from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.chores import Chore, chore_job
from laminar_core.orchestration.housekeeping.costs import (
    CostFacts,
    CostReport,
    Stored,
    reckon,
    request_cost,
    storage_cost,
)
from laminar_core.orchestration.housekeeping.report_tables import Row, table_of
from laminar_core.orchestration.spec import PriceTable
from laminar_core.retention.facts import Completed
from laminar_core.retention.run import Planned, Retention
from laminar_core.store.usage import (
    GenerationTraffic,
    checkpoint_interval_ms,
    read_record_usage,
    read_traffic,
)

CHECKPOINTS_SHOWN = 50
_HOUR_MS = 3_600_000
_AGES = (("an hour", 1), ("a day", 24), ("a week", 7 * 24), ("a month", 730))


class CostForm(ActForm):
    """A report reads, and changes nothing."""


def build_cost_job(group: Group, clock: Clock) -> dg.JobDefinition:
    """Return ``laminar_costs``."""
    return chore_job(
        group,
        "costs",
        CostForm,
        report_costs,
        clock,
        description="Reckon what the checkpoints of a stream cost.",
    )


def report_costs(chore: Chore, _form: CostForm) -> None:
    """Read what is stored and what was sent, and report it on ``[stream, costs]``.

    Raises:
        LaminarError: the store did not answer, or what a generation started from is damaged.
    """
    store, prices = chore.store, chore.spec.prices
    retention = Retention(store, chore.spec.retention.policy(), chore.clock.now_ms)
    planned = retention.plan(indexed=True)
    records = read_record_usage(store, {file.path for file in planned.facts.files})
    facts = CostFacts(
        stored=(
            *stored_files(planned),
            Stored(
                "records", records.objects, records.size_bytes, records.measured < records.objects
            ),
        ),
        traffic=tuple(read_traffic(store)),
        newest_generation=planned.facts.newest_generation or 0,
        checkpoint_interval_ms=checkpoint_interval_ms(store),
        reclaimable_bytes=planned.plan.deleted_bytes,
    )
    report = reckon(facts, prices)
    metadata = {**cost_metadata(report, facts, prices), **checkpoint_metadata(planned)}
    sent = counts_of(store.objects)
    if sent is not None:
        metadata["report_requests"] = sent.puts + sent.gets + sent.lists + sent.heads
    chore.materialize("costs", metadata)
    chore.context.log.info(in_words(report, prices))


def stored_files(planned: Planned) -> Iterator[Stored]:
    """Yield the counts of state, in-flight and shared files, and of files with unknown names."""
    kinds: dict[str, list[int]] = {
        name: [] for name in ("shared segments", "checkpoint files", "in-flight", "unknown")
    }
    for file in planned.facts.files:
        kind = {"shared": "shared segments", "unknown": "unknown"}.get(file.kind)
        if kind is None:
            is_inflight = file.path.endswith(".buf")
            kind = "in-flight" if is_inflight else "checkpoint files"
        kinds[kind].append(file.size_bytes)
    yield from (Stored(kind, len(sizes), sum(sizes)) for kind, sizes in kinds.items())


def cost_metadata(report: CostReport, facts: CostFacts, prices: PriceTable) -> dict[str, Any]:
    """Return numbers for plots; unknown ones are left out, with the reason."""
    metadata: dict[str, Any] = {
        "stored_bytes": report.stored_bytes,
        "stored_objects": report.stored_objects,
        "storage_per_month": report.storage_per_month,
        "retention_saves_bytes": facts.reclaimable_bytes,
        "retention_saves_per_month": report.retention_saves_per_month,
        "currency": prices.currency,
        "prices": dg.MetadataValue.json(prices.model_dump(mode="json")),
        "stored": table_of([_stored_row(each, prices) for each in facts.stored]),
        "counted": _what_is_counted(report),
    }
    reckoned = {
        "requests_per_month": report.requests_per_month,
        "cost_per_month": report.per_month,
        "cost_per_checkpoint": report.per_checkpoint,
    }
    metadata |= {name: cost for name, cost in reckoned.items() if cost is not None}
    if facts.traffic:
        rows = [_traffic_row(each, prices) for each in facts.traffic]
        metadata["requests"] = table_of(rows)
    return metadata


def checkpoint_metadata(planned: Planned) -> dict[str, Any]:
    """Return the bytes of each checkpoint, and its age."""
    completed = [c for c in planned.facts.checkpoints if isinstance(c, Completed)]
    if not completed:
        return {}
    own = _own_bytes(planned)
    goes = set(planned.plan.deleted_ids)
    now_ms = planned.facts.now_ms
    rows = [
        {
            "checkpoint": c.checkpoint_id,
            "age in hours": round((now_ms - c.completed_at_ms) / _HOUR_MS, 2),
            "bytes of its own": own.get(c.checkpoint_id, 0),
            "bytes it names": c.size_bytes,
            "retention": "deletes it" if c.checkpoint_id in goes else "keeps it",
        }
        for c in sorted(completed, key=lambda c: -c.checkpoint_id)[:CHECKPOINTS_SHOWN]
    ]
    ages = _by_age([(now_ms - c.completed_at_ms, own.get(c.checkpoint_id, 0)) for c in completed])
    return {
        "checkpoints": table_of(rows),
        "by_age": table_of(ages),
    }


def in_words(report: CostReport, prices: PriceTable) -> str:
    """Return the report as one line."""
    storage = f"storage {report.storage_per_month:.4f} {prices.currency} a month"
    if report.per_month is None:
        return f"{storage}; {_NOT_KNOWN}"
    return f"{storage}, with requests {report.per_month:.4f}"


_NOT_KNOWN = (
    "what requests cost is not known: the newest generation has not counted them for a minute"
)


def _what_is_counted(report: CostReport) -> str:
    counted = (
        "Counted: objects; bytes of state, in-flight and shared files; requests of each "
        "generation's workers and driver until its last sign of life, without the driver's before "
        "its workers started. Estimated: bytes of records where only a sample was measured; what a "
        "month costs, if the newest generation goes on as so far. Not contained: other processes "
        "(this report, drills, retention, the command line), savepoints, transfer out of a region."
    )
    return counted if report.requests_per_month is not None else f"{counted} Now {_NOT_KNOWN}."


def _stored_row(stored: Stored, prices: PriceTable) -> Row:
    return {
        "kind": stored.kind,
        "objects": stored.objects,
        "bytes": stored.size_bytes,
        "a month": storage_cost(stored.size_bytes, prices),
        "bytes are": "estimated" if stored.is_estimated else "counted",
    }


def _traffic_row(traffic: GenerationTraffic, prices: PriceTable) -> Row:
    sent = traffic.requests
    return {
        "generation": traffic.generation,
        "hours": round(traffic.duration_ms / _HOUR_MS, 3),
        "puts": sent.puts,
        "lists": sent.lists,
        "gets": sent.gets,
        "heads": sent.heads,
        "deletes": sent.deletes,
        "bytes up": sent.bytes_up,
        "bytes down": sent.bytes_down,
        "cost": request_cost(sent, prices),
    }


def _own_bytes(planned: Planned) -> dict[int, int]:
    own: dict[int, int] = {}
    for file in planned.facts.files:
        if file.kind == "part" and file.checkpoint_id is not None:
            own[file.checkpoint_id] = own.get(file.checkpoint_id, 0) + file.size_bytes
    return own


def _by_age(aged: Sequence[tuple[int, int]]) -> list[Row]:
    """Bytes that only the checkpoints of an age name, cumulated from the youngest on."""
    rows = [("younger than " + name, hours * _HOUR_MS) for name, hours in _AGES]
    rows.append(("all", 2**62))
    return [
        {
            "age": name,
            "checkpoints": sum(age_ms < limit_ms for age_ms, _ in aged),
            "bytes of their own": sum(n for age_ms, n in aged if age_ms < limit_ms),
        }
        for name, limit_ms in rows
    ]
