"""Numbers of sinks follow from commits, and from output that waits for its commit."""

from laminar_core.driver.sink_watch import SinkWatch
from laminar_core.host.clock import ManualClock
from laminar_core.operators.base import JsonObject
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.sink_numbers import SinkNumbers
from tests.records.manifests import manifest, subtask


def part(name: str, rows: int = 100, **more: int) -> JsonObject:
    return {"name": name, "rows": rows, **more}


def offer(*parts: JsonObject, sink: str = "sink") -> SubtaskEntry:
    return subtask(sink, 0, committables=parts)


def checkpoint(*entries: SubtaskEntry) -> CheckpointManifest:
    rest = (subtask("window", 0), subtask("window", 1), subtask("sink", 1))
    return manifest(subtasks=(*rest, *entries))


def rate(watch: SinkWatch) -> float | None:
    return watch.numbers((), 0)["sink"].publish_rows_per_s


class TestRate:
    def test_it_is_of_the_last_commit_with_rows(self) -> None:
        watch = SinkWatch(["sink"])
        assert rate(watch) is None
        watch.committed(checkpoint(offer(part("a"), part("b"))), {"sink": 50.0})
        assert rate(watch) == 4_000
        watch.committed(checkpoint(offer()), {"sink": 5.0})
        assert rate(watch) == 4_000
        watch.committed(checkpoint(offer(part("c", 7))), {"sink": 1_000.0})
        assert rate(watch) == 7

    def test_rows_that_a_later_checkpoint_carries_count_once(self) -> None:
        watch = SinkWatch(["sink"])
        watch.committed(checkpoint(offer(part("a"))), {"sink": 100.0})
        watch.committed(checkpoint(offer(part("a"), part("b", 10), part("b", 10))), {"sink": 100.0})
        assert rate(watch) == 100

    def test_a_sink_that_does_not_count_its_rows_has_none(self) -> None:
        watch = SinkWatch(["sink"])
        watch.committed(checkpoint(offer({"name": "a"})), {"sink": 100.0})
        assert rate(watch) is None

    def test_a_commit_within_a_tick_of_the_clock_has_a_rate_all_the_same(self) -> None:
        watch = SinkWatch(["sink"])
        watch.committed(checkpoint(offer(part("a"))), {"sink": 0.0})
        assert rate(watch) == 100_000

    def test_a_sink_that_committed_nothing_keeps_its_rate(self) -> None:
        watch = SinkWatch(["sink"])
        watch.committed(checkpoint(offer(part("a"))), {"sink": 100.0})
        watch.committed(checkpoint(offer(part("b"))), {})
        assert rate(watch) == 1_000


class TestExpiry:
    def test_it_is_the_first_one_of_each_sink_and_comes_nearer(self) -> None:
        clock = ManualClock(1_000)
        watch = SinkWatch(["sink", "other"])
        waiting = [
            offer(part("a", expires_at_ms=61_000)),
            offer(part("b", expires_at_ms=31_000), part("c")),
            offer(part("d", expires_at_ms=41_000), sink="other"),
            offer(part("e", expires_at_ms=2_000), sink="of nobody"),
        ]

        def left() -> list[int | None]:
            found = watch.numbers(waiting, clock.now_ms())
            return [found[sink].transaction_expires_in_ms for sink in ("sink", "other")]

        assert left() == [30_000, 40_000]
        clock.wait_ms(29_000)
        assert left() == [1_000, 11_000]
        clock.wait_ms(2_000)
        assert left() == [-1_000, 9_000], "it may have expired"

    def test_output_that_is_committed_or_never_expires_has_none(self) -> None:
        watch = SinkWatch(["sink"])
        first = part("a", expires_at_ms=31_000)
        watch.committed(checkpoint(offer(first)), {"sink": 100.0})
        carried = offer(first, part("b", expires_at_ms=61_000))
        assert watch.numbers([carried], 1_000)["sink"].transaction_expires_in_ms == 60_000
        assert watch.numbers([offer(first)], 1_000)["sink"].transaction_expires_in_ms is None
        assert SinkWatch(["sink"]).numbers([offer(part("c"))], 1_000) == {"sink": SinkNumbers()}
