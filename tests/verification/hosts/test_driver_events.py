"""Events of drivers say when a fault was noticed, and how long no rows flowed."""

import json
from pathlib import Path

from verification.hosts.driver_events import EventLog, Reaction, flow_times, longest_gap, reaction


def event(name: str, time_ms: int, **fields: object) -> dict:
    return {"event": name, "time_ms": time_ms, **fields}


def progress(*rows: int, start_ms: int = 0, step_ms: int = 500) -> list[dict]:
    return [event("progress", start_ms + i * step_ms, rows_in=n) for i, n in enumerate(rows)]


RESTART = [
    event("generation-started", 0, generation=1),
    *progress(10, 20, 30, 30, 30, start_ms=500),
    event("generation-failed", 2_900, code="worker-lost", reason="", generation=1),
    event("generation-started", 3_000, generation=2),
    *progress(15, start_ms=3_300),
    event("data-flowing", 3_900, generation=2),
    *progress(25, 35, start_ms=4_000),
]


def test_rows_flow_where_a_total_grows_within_a_generation() -> None:
    assert flow_times(RESTART) == [1_000, 1_500, 3_900, 4_000, 4_500]


def test_a_fault_is_measured_from_its_time_on() -> None:
    assert reaction(RESTART, 1_600, 4_500) == Reaction(1_300, "worker-lost", 2_300, 2_300, 1)


def test_a_pause_without_a_restart_is_a_standstill() -> None:
    events = progress(10, 20, 20, 20, 20, 20, 30)
    assert reaction(events, 600, 3_000) == Reaction(None, None, 2_400, 2_400, 0)


def test_rows_that_never_came_back_have_no_time() -> None:
    assert reaction(progress(10, 20, 20, 20), 600, 9_000) == Reaction(None, None, None, 8_400, 0)


def test_events_of_two_drivers_are_taken_by_time() -> None:
    assert reaction(RESTART[::-1], 1_600, 4_500) == reaction(RESTART, 1_600, 4_500)


def test_the_longest_gap_is_told_with_its_end() -> None:
    assert longest_gap([0, 2, 7, 9]) == (5, 7)


def test_a_line_that_is_half_written_is_read_later(tmp_path: Path) -> None:
    file = tmp_path / "driver.log"
    log = EventLog(file)
    assert log.read() == []
    first, second = (json.dumps(event("progress", n)) for n in (1, 2))
    file.write_text(f"{first}\nno event\n{second[:9]}")
    assert [e["time_ms"] for e in log.read()] == [1]
    with file.open("a") as more:
        more.write(f"{second[9:]}\n")
    assert [e["time_ms"] for e in log.read()] == [1, 2]
