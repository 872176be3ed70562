"""The workers learn how far the slowest split is: what changed, and not too often."""

from laminar_core.driver.steering import TARGET_INTERVAL_MS, Steering
from laminar_core.host.clock import ManualClock
from laminar_core.link.messages import Progress, SourceProgress, WatermarkTarget


def report(worker: int, slowest_us: int | None) -> Progress:
    source = SourceProgress(rows_unread=0, slowest_us=slowest_us)
    return Progress(
        generation=3,
        worker=worker,
        rows_in=0,
        rows_out=0,
        rows_late=0,
        flowing=True,
        watermark_us=None,
        drained=False,
        sources={"in": source},
    )


def test_the_least_of_all_workers_is_sent_when_it_changes() -> None:
    sent: list[WatermarkTarget] = []
    clock = ManualClock()
    steering = Steering(3, sent.append, clock)
    for worker, slowest_us in ((0, 50), (1, 10), (0, 60), (1, 20), (1, None), (0, None)):
        steering.take(report(worker, slowest_us))
        clock.wait_ms(TARGET_INTERVAL_MS)
    assert [message.time_us for message in sent] == [10, 20, None]
    assert {message.generation for message in sent} == {3}


def test_many_reports_at_once_are_one_message_and_the_newest_goes_out_later() -> None:
    sent: list[WatermarkTarget] = []
    clock = ManualClock()
    steering = Steering(3, sent.append, clock)
    for time_us in range(100):
        for worker in range(2):
            steering.take(report(worker, time_us))
    assert [message.time_us for message in sent] == [0]
    clock.wait_ms(TARGET_INTERVAL_MS)
    steering.take(report(0, 99))
    assert sent[-1].time_us == 99


def test_sources_without_a_limit_cause_no_messages() -> None:
    sent: list[WatermarkTarget] = []
    steering = Steering(3, sent.append, ManualClock())
    steering.take(report(0, None))
    steering.take(report(1, None))
    assert sent == []
