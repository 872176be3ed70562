"""Who did not acknowledge is described within bounds, and those that said why come first."""

from laminar_core.driver.events import MissingChannel
from laminar_core.driver.missing import SUBTASKS_MAX, missing_line, missing_subtasks
from laminar_core.link.messages import WaitingChannel, WaitingCheckpoint, WaitingVertex
from laminar_core.protocol.coordinator_events import SubtaskId
from laminar_core.protocol.waiting import WaitsFor
from tests.plan.plans import small_plan

PLAN = small_plan()
VERTICES = [vertex.vertex_id for vertex in PLAN.vertices]
LAST = VERTICES[-1]


def report(worker: int, waits_for: WaitsFor, channels: int = 0) -> dict[int, WaitingCheckpoint]:
    shown = tuple(WaitingChannel(upstream="in", sender=n) for n in range(min(channels, 4)))
    vertex = WaitingVertex(
        vertex_id=LAST, waits_for=waits_for, channels=shown, channel_count=channels
    )
    return {
        worker: WaitingCheckpoint(generation=1, worker=worker, checkpoint_id=7, vertices=(vertex,))
    }


def described(missing, reports):
    return missing_subtasks(missing, PLAN, reports, lambda worker: f"host-{worker}")


def test_a_subtask_has_its_operators_its_host_and_the_channels_it_waits_for() -> None:
    (one,) = described([SubtaskId(LAST, 1)], report(1, WaitsFor.BARRIERS, channels=1))
    assert (one.vertex_id, one.subtask_index, one.host) == (LAST, 1, "host-1")
    assert one.operators == tuple(PLAN.vertices[-1].operator_ids())
    assert (one.waits_for, one.channel_count) == (WaitsFor.BARRIERS, 1)
    assert one.channels == (MissingChannel(upstream="in", sender=0),)
    assert missing_line((one,), 1) == f"{LAST} 1 on host-1 waited for the barrier from in 0"


def test_those_that_said_what_they_wait_for_come_first() -> None:
    everybody = [SubtaskId(LAST, n) for n in range(3)]
    found = described(everybody, report(2, WaitsFor.UPLOAD))
    assert [one.subtask_index for one in found] == [2, 0, 1]
    assert missing_line(found, 3) == (
        f"{LAST} 2 on host-2 was still writing its state; "
        f"{LAST} 0 on host-0 did not acknowledge; {LAST} 1 on host-1 did not acknowledge"
    )


def test_a_job_of_any_size_is_described_in_the_same_space() -> None:
    everybody = [SubtaskId(LAST, n) for n in range(1_000)]
    found = described(everybody, report(0, WaitsFor.IN_FLIGHT, channels=1_000))
    assert len(found) == SUBTASKS_MAX
    line = missing_line(found, 1_000)
    assert "waited for the barrier, its cut made, from in 0, in 1 and 998 more" in line
    assert line.endswith("; and 997 more subtasks")
    assert len(line) < 300


def test_where_nobody_is_missing_there_is_nothing_to_say() -> None:
    assert missing_line(described([], {}), 0) == ""
