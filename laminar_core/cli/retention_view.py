"""Plans of retention as text and as JSON."""

from collections.abc import Iterable, Iterator, Sequence

from laminar_core.cli.views import print_table, size_text, wall_time
from laminar_core.host.terminal import say
from laminar_core.records.record import JsonObject
from laminar_core.records.retention import RetentionResult
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.facts import FileVerdict, RetentionPlan
from laminar_core.retention.status import PlanStatus, RetentionStatus
from laminar_core.store.pins import StoredPin

IDS_SHOWN = 20


def plan_as_json(
    plan: RetentionPlan, config: RetentionConfig, unfinished: Sequence[int]
) -> dict[str, object]:
    """Return the whole plan, as ``print_json`` takes it."""
    return {
        "policy": config.model_dump(),
        "generation": plan.generation,
        "blocked": plan.blocked,
        "unfinished_plans": list(unfinished),
        "deleted_checkpoints": list(plan.deleted_ids),
        "deleted_files": len(plan.deleted_files),
        "deleted_bytes": plan.deleted_bytes,
        "checkpoints": plan.checkpoints,
        "files": plan.files,
        "abandoned": list(plan.abandoned),
        "forgotten": list(plan.forgotten),
    }


def print_plan(
    plan: RetentionPlan, config: RetentionConfig, unfinished: Sequence[int], *, with_files: bool
) -> None:
    """Print the totals, then what is deleted and what is kept, and why."""
    said = ", ".join(f"{name} {value}" for name, value in _different(config).items())
    say(f"policy: {said or 'as it is by default'}")
    for number in unfinished:
        say(f"plan {number} is decided and not finished: the next apply finishes it first")
    if plan.blocked is not None:
        say(f"nothing is deleted: {plan.blocked}")
    say(
        f"{_count(len(plan.deleted_ids), 'checkpoint')} and "
        f"{_count(len(plan.deleted_files), 'file')} go, {size_text(plan.deleted_bytes)}"
    )
    freed = _freed(plan.deleted_files)
    print_table(
        ("id", "verdict", "completed", "size", "freed", "why"),
        (
            (
                str(v.checkpoint_id),
                v.action,
                wall_time(v.completed_at_ms),
                size_text(v.size_bytes),
                size_text(freed.get(v.checkpoint_id, 0)) if v.action == "delete" else "",
                "; ".join(v.reasons),
            )
            for v in plan.checkpoints
        ),
    )
    for line in _file_lines(plan, with_files=with_files):
        say(line)
    if plan.forgotten:
        say(f"history that is forgotten: {_ids(plan.forgotten)}")


def print_result(result: RetentionResult, what: str) -> None:
    """Print what was deleted."""
    say(
        f"{what}: plan {result.number} deleted {_count(result.deleted_checkpoints, 'checkpoint')} "
        f"and {_count(result.deleted_files, 'file')}, {size_text(result.deleted_bytes)}"
    )
    if result.quarantined_files:
        say(f"{_count(result.quarantined_files, 'file')} put into quarantine")


def status_as_json(status: RetentionStatus) -> dict[str, object]:
    """Return the whole status as JSON."""
    return {
        "plans": [_plan_as_json(plan) for plan in status.plans],
        "quarantine": [record.model_dump(mode="json") for record in status.quarantine],
        "pins": [pin_as_json(pin) for pin in status.pins],
    }


def print_status(status: RetentionStatus, now_ms: int) -> None:
    """Print plans, quarantine and pins, each if there are any."""
    print_table(
        ("number", "planned", "state", "checkpoints", "size", "actor", "why"),
        map(_plan_row, status.plans),
    )
    if status.quarantine:
        say()
        rows = ((wall_time(q.first_seen_at_ms), q.path, q.reason) for q in status.quarantine)
        print_table(("in quarantine since", "file", "why"), rows)
    if status.pins:
        say()
        print_table(
            ("id", "pin", "until", "actor", "why"), (_pin_row(pin, now_ms) for pin in status.pins)
        )


def pin_as_json(pin: StoredPin) -> JsonObject:
    """Return a pin, or the problem of reading it, as JSON."""
    if pin.record is None:
        return {"checkpoint_id": pin.checkpoint_id, "name": pin.name, "problem": pin.problem}
    return pin.record.model_dump(mode="json", exclude={"format_version"})


def pin_as_remark(pin: StoredPin, now_ms: int) -> str:
    """Return a pin as a short remark."""
    ends_at_ms = pin.record.expires_at_ms if pin.record else None
    if ends_at_ms is None:
        return f"pinned ({pin.name})"
    when = "held until" if ends_at_ms > now_ms else "was held until"
    return f"{when} {wall_time(ends_at_ms)} ({pin.name})"


def _different(config: RetentionConfig) -> JsonObject:
    defaults = RetentionConfig().model_dump()
    return {n: v for n, v in config.model_dump().items() if v != defaults[n] or n == "keep_last"}


def _freed(files: Iterable[FileVerdict]) -> dict[int, int]:
    freed: dict[int, int] = {}
    for file in files:
        if file.checkpoint_id is not None:
            freed[file.checkpoint_id] = freed.get(file.checkpoint_id, 0) + file.size_bytes
    return freed


def _file_lines(plan: RetentionPlan, *, with_files: bool) -> Iterator[str]:
    """Yield left-over files and problems; files deleted with a checkpoint only if requested."""
    gone = set(plan.deleted_ids)
    for file in plan.files:
        with_its_checkpoint = file.action == "delete" and file.checkpoint_id in gone
        if file.action == "keep" or (with_its_checkpoint and not with_files):
            continue
        yield f"{file.action} {file.path} ({size_text(file.size_bytes)}): {file.reason}"


def _plan_as_json(plan: PlanStatus) -> dict[str, object]:
    return {
        "number": plan.number,
        "state": plan.state,
        "problem": plan.problem,
        "plan": plan.record and plan.record.model_dump(mode="json"),
        "decision": plan.decision and plan.decision.model_dump(mode="json"),
        "result": plan.result and plan.result.model_dump(mode="json"),
    }


def _plan_row(plan: PlanStatus) -> tuple[str, ...]:
    record = plan.record
    if record is None:
        return (str(plan.number), plan.state, "", "", "", "", plan.problem or "")
    why = record.reason
    if plan.state == "given-up" and plan.decision is not None:
        why = f"{plan.decision.by}: {plan.decision.reason}"
    return (
        str(plan.number),
        wall_time(record.planned_at_ms),
        plan.state,
        str(len(record.checkpoints)),
        size_text(record.deleted_bytes),
        record.actor,
        why,
    )


def _pin_row(pin: StoredPin, now_ms: int) -> tuple[str, ...]:
    if pin.record is None:
        return (str(pin.checkpoint_id), pin.name, "", "", pin.problem or "")
    ends_at_ms = pin.record.expires_at_ms
    ended = " (over)" if ends_at_ms is not None and ends_at_ms <= now_ms else ""
    until = "for ever" if ends_at_ms is None else wall_time(ends_at_ms) + ended
    return (str(pin.checkpoint_id), pin.name, until, pin.record.actor, pin.record.reason)


def _ids(ids: Sequence[int]) -> str:
    more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
    return ", ".join(str(n) for n in ids[:IDS_SHOWN]) + more


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
