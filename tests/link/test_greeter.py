"""A worker greets the others over the data connection until it begins."""

from laminar_core.link.greeter import Greeter
from laminar_core.link.wire import FrameKind, decode_header
from laminar_core.protocol.greetings import GREETING_INTERVAL_MS
from tests.driver.hosts import WorkerLink


def test_every_other_worker_gets_a_greeting_until_the_end() -> None:
    link, reports = WorkerLink(), []
    greeter = Greeter(1, generation=4)
    greeter.turn(0.0)
    greeter.hear(0)
    assert link.frames == []
    greeter.begin(link, 3, 10.0, reports.append)
    headers = [decode_header(header) for _, header, _ in link.frames]
    assert [peer for peer, _, _ in link.frames] == [h.receiver for h in headers] == [0, 2]
    assert {(h.kind, h.sender, h.generation) for h in headers} == {(FrameKind.GREETING, 1, 4)}
    greeter.hear(2)
    greeter.turn(10.0 + GREETING_INTERVAL_MS)
    assert (reports, len(link.frames)) == ([(0,)], 4)
    greeter.hear(0)
    assert reports == [(0,), ()]
    greeter.end()
    greeter.turn(1e9)
    greeter.hear(0)
    assert (len(reports), len(link.frames)) == (2, 4)
