"""A trace can be read, forgets the oldest, and tells runs apart."""

from laminar_core.testing import trace as module
from laminar_core.testing.trace import Trace


def test_notes_come_first_then_the_last_turns():
    trace = Trace(1_000)
    trace.turn(1_001.5, 1, "worker")
    trace.note(1_002.25, 1, "job", "started")
    assert trace.lines() == [
        "       2.250 ms  turn      1  job                       started",
        "the last 1 turns:",
        "       1.500 ms  turn      1  worker                    turn",
    ]


def test_the_oldest_notes_are_forgotten_and_counted(monkeypatch):
    monkeypatch.setattr(module, "NOTES_MAX", 2)
    trace = Trace(0)
    for number in range(5):
        trace.note(number, number, "job", f"note {number}")
    first, *rest = trace.lines()
    assert first == "… 3 earlier lines"
    assert [line.split()[-1] for line in rest] == ["3", "4"]


def test_digests_distinguish_traces():
    traces = [Trace(0) for _ in range(3)]
    for trace, what in zip(traces, ("same", "same", "other"), strict=True):
        trace.note(1, 1, "job", what)
    one, two, three = (trace.digest() for trace in traces)
    assert one == two != three


def test_who_had_the_last_turns():
    trace = Trace(0)
    for number, name in enumerate("abcd"):
        trace.turn(number, number, name)
    assert trace.recent(2) == ["c", "d"]
