"""Describe the subtasks that did not acknowledge a checkpoint, and what each waited for."""

from collections.abc import Callable, Iterable, Mapping

from laminar_core.driver.events import MissingChannel, MissingSubtask
from laminar_core.link.messages import WaitingCheckpoint, WaitingVertex
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_events import SubtaskId

SUBTASKS_MAX = 16
"""Largest number of subtasks listed in the event; it has the number of the others."""
SUBTASKS_IN_A_LINE = 3
CHANNELS_IN_A_LINE = 2


def missing_subtasks(
    missing: Iterable[SubtaskId],
    plan: Plan,
    reports: Mapping[int, WaitingCheckpoint],
    host_of: Callable[[int], str],
) -> tuple[MissingSubtask, ...]:
    """Describe the first of ``missing``; those with a report come first.

    ``reports`` are the workers' last reports for this checkpoint.
    """
    operators = {vertex.vertex_id: tuple(vertex.operator_ids()) for vertex in plan.vertices}
    said = {
        (vertex.vertex_id, worker): vertex
        for worker, report in reports.items()
        for vertex in report.vertices
    }
    ordered = sorted(missing, key=lambda s: ((s.vertex_id, s.subtask_index) not in said, s))
    return tuple(
        _described(
            subtask,
            operators.get(subtask.vertex_id, ()),
            host_of(subtask.subtask_index),
            said.get((subtask.vertex_id, subtask.subtask_index)),
        )
        for subtask in ordered[:SUBTASKS_MAX]
    )


def _described(
    subtask: SubtaskId, operators: tuple[str, ...], host: str, said: WaitingVertex | None
) -> MissingSubtask:
    channels = () if said is None else said.channels
    return MissingSubtask(
        vertex_id=subtask.vertex_id,
        subtask_index=subtask.subtask_index,
        operators=operators,
        host=host,
        waits_for=None if said is None else said.waits_for,
        channels=tuple(MissingChannel(upstream=c.upstream, sender=c.sender) for c in channels),
        channel_count=0 if said is None else said.channel_count,
    )


def missing_line(missing: tuple[MissingSubtask, ...], count: int) -> str:
    """Put it in a line; ``count`` are all that were missing. Empty if none was."""
    if not missing:
        return ""
    named = [_phrase(one) for one in missing[:SUBTASKS_IN_A_LINE]]
    more = f"; and {count - len(named)} more subtasks" if count > len(named) else ""
    return f"{'; '.join(named)}{more}"


def _phrase(one: MissingSubtask) -> str:
    where = f"{one.vertex_id} {one.subtask_index}{f' on {one.host}' if one.host else ''}"
    if one.waits_for is None:
        return f"{where} did not acknowledge"
    if one.waits_for == "upload":
        return f"{where} was still writing its state"
    names = [f"{c.upstream} {c.sender}" for c in one.channels[:CHANNELS_IN_A_LINE]]
    others = one.channel_count - len(names)
    more = f" and {others} more" if others > 0 else ""
    what = "the barrier" if one.waits_for == "barriers" else "the barrier, its cut made,"
    return f"{where} waited for {what} from {', '.join(names)}{more}"
