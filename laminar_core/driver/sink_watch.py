"""Numbers of the sinks of one generation, from the commits and from what waits for its commit."""

from collections.abc import Collection, Iterable, Mapping

from laminar_core.driver.publication import committables_of
from laminar_core.operators.base import JsonObject
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.pre_committed import first_expiry_ms, key_of, rows_of
from laminar_core.records.sink_numbers import SinkNumbers


class SinkWatch:
    """Called from the coordinator's thread only."""

    def __init__(self, sinks: Collection[str]) -> None:
        self._rows_per_s: dict[str, float | None] = dict.fromkeys(sinks)
        self._committed: dict[str, frozenset[str]] = dict.fromkeys(sinks, frozenset())
        """The committables of the last commit: the checkpoints after it may carry them, too."""

    def committed(self, manifest: CheckpointManifest, took_ms: Mapping[str, float]) -> None:
        """Take note of a commit, and of the time that each sink took for it."""
        for sink, sink_ms in took_ms.items():
            offered = {key_of(each): each for each in committables_of(manifest, sink)}
            rows = rows_of(offered[key] for key in offered.keys() - self._committed[sink])
            self._committed[sink] = frozenset(offered)
            if rows is None:
                self._rows_per_s[sink] = None
            elif rows:
                self._rows_per_s[sink] = 1000 * rows / max(sink_ms, 1.0)

    def numbers(self, waiting: Iterable[SubtaskEntry], now_ms: int) -> dict[str, SinkNumbers]:
        """Return the numbers of each sink.

        ``waiting`` are parts of checkpoints that are not committed; ``now_ms`` is a wall clock's.
        """
        pre_committed: dict[str, list[JsonObject]] = {sink: [] for sink in self._rows_per_s}
        for entry in waiting:
            if entry.operator_id in pre_committed:
                pre_committed[entry.operator_id] += entry.committables
        found: dict[str, SinkNumbers] = {}
        for sink, rate in self._rows_per_s.items():
            first_ms = first_expiry_ms(pre_committed[sink], self._committed[sink])
            left_ms = None if first_ms is None else first_ms - now_ms
            found[sink] = SinkNumbers(publish_rows_per_s=rate, transaction_expires_in_ms=left_ms)
        return found
