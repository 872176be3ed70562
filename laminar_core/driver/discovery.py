"""Run the discoveries of a generation's sources, and send what they find to the workers.

The steps run in threads of their own. Everything else happens in the coordinator's thread, so what
is found and the triggers of checkpoints go out in one order; ``protocol.split_book`` says why that
matters.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import Discovery, Forgetting, Found
from laminar_core.driver.events import SplitsNotFound
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.driver.publication import JobIdentity
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, LaminarError
from laminar_core.link.messages import AddSplits, SourceProgress, encode_splits
from laminar_core.plan.plan import SourceNode
from laminar_core.protocol import split_book
from laminar_core.protocol.split_book import FoundSoFar, FoundSplit, SplitBook
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest_fields import DiscoveryEntry
from laminar_core.state.splits import missing_columns, rows_left

RETRY_PAUSE_MS = (1_000, 60_000)
"""First and longest pause after a step that failed."""

MESSAGE_SPLITS_MAX = 5_000
"""Splits in one message to a worker."""


@dataclass(frozen=True, slots=True)
class Discovering:
    """A source with its discovery, and what is known when a generation starts."""

    source_type: str
    discovery: Discovery
    found: FoundSoFar
    forgetting: Forgetting | None = None
    """The source itself, if its input deletes old rows."""

    @classmethod
    def of(cls, node: SourceNode, found: FoundSoFar) -> "Discovering":
        """Return the discovery of a source that goes on after ``found``."""
        forgetting = node.source if isinstance(node.source, Forgetting) else None
        return cls(type(node.source).__name__, node.source.discovery(), found, forgetting)


def checked(operator_id: str, source_type: str, found: Found, next_split_id: int) -> Found:
    """Return what a step found, after a check of what every source promises.

    Raises:
        ConfigurationError: a column is missing, or a split has the number of another one.
    """
    where = f"source {operator_id}: the discovery of {source_type}"
    if missing := missing_columns(found.splits):
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA,
            f"{where} returned a table of splits without {', '.join(missing)}: make it with "
            "split_table()",
        )
    ids = found.splits.column("split_id").to_pylist()
    repeated = len(set(ids)) < len(ids)
    if repeated or any(split_id < next_split_id for split_id in ids):
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA,
            f"{where} used a split_id twice: number new splits from {next_split_id} on, each "
            "with a number of its own",
        )
    return found


def after(found: Found) -> FoundSoFar:
    """Return what is known after the first step of a fresh start."""
    ids: list[int] = found.splits.column("split_id").to_pylist()
    return FoundSoFar(found.state, max(ids, default=-1) + 1, found.complete)


class _Running:
    """One source: its book, and when its next step is due."""

    def __init__(self, operator_id: str, discovering: Discovering, workers: int) -> None:
        self.operator_id = operator_id
        self.discovering = discovering
        self.book: SplitBook = split_book.opened(workers, discovering.found)
        self.due_ms = 0.0
        self.is_busy = False
        self.began_ms = 0.0
        self.took_ms: float | None = None
        """Duration of the last step that succeeded."""
        self.late_count: int | None = None
        """Files that the last step left out, because they came too late."""
        self.pause_ms = RETRY_PAUSE_MS[0]
        self.problems: frozenset[str] = frozenset()
        """What the last step could not read. These problems are not reported again."""

    @property
    def is_over(self) -> bool:
        return self.book.found.complete


class SplitDiscovery:
    """The discoveries of one generation. Called from the coordinator's thread only."""

    def __init__(
        self,
        sources: Mapping[str, Discovering],
        identity: JobIdentity,
        host: CoordinatorHost,
        executor: Executor,
    ) -> None:
        self._generation = identity.generation
        self._workers = range(identity.parallelism)
        self._host = host
        self._executor = executor
        self._sources = {
            operator_id: _Running(operator_id, discovering, identity.parallelism)
            for operator_id, discovering in sources.items()
        }

    def tick(self) -> None:
        """Begin the steps that are due."""
        now_ms = self._host.monotonic_ms()
        for source in self._sources.values():
            if not (source.is_over or source.is_busy) and now_ms >= source.due_ms:
                source.is_busy, source.began_ms = True, now_ms
                self._executor.submit(self._step(source))

    def next_wakeup_ms(self) -> float | None:
        """Return when ``tick`` is due; None if it is not."""
        waiting = (s.due_ms for s in self._sources.values() if not (s.is_over or s.is_busy))
        return min(waiting, default=None)

    def reported(self, worker: int, sources: Mapping[str, SourceProgress]) -> None:
        """Note how much a worker has left to read: new splits go to those with the least."""
        for operator_id, report in sources.items():
            if (source := self._sources.get(operator_id)) is not None:
                event = split_book.Reported(worker, report.splits_added, report.rows_unread)
                source.book, _ = split_book.step(source.book, event)

    def durations_ms(self) -> dict[str, float]:
        """Return how long the last step took, by source; only those that had one."""
        known = self._sources.items()
        return {name: source.took_ms for name, source in known if source.took_ms is not None}

    def late_counts(self) -> dict[str, int | None]:
        """Return how many files the last step left out as late, by source."""
        return {name: source.late_count for name, source in self._sources.items()}

    def trigger_sent(self, checkpoint_id: CheckpointId) -> dict[str, DiscoveryEntry]:
        """Return, by source, what becomes part of a checkpoint whose trigger goes out now."""
        kept: dict[str, DiscoveryEntry] = {}
        for source in self._sources.values():
            event = split_book.TriggerSent(checkpoint_id)
            source.book, effects = split_book.step(source.book, event)
            for effect in effects:
                if isinstance(effect, split_book.KeepState):
                    kept[source.operator_id] = entry_of(effect.found)
        return kept

    # --- one step -------------------------------------------------------------------------------

    def _step(self, source: _Running) -> Callable[[], None]:
        """Return the step for a thread; what comes of it is posted to the coordinator."""
        discovering, before = source.discovering, source.book.found

        def run() -> None:
            try:
                found = checked(
                    source.operator_id,
                    discovering.source_type,
                    discovering.discovery.step(dict(before.state)),  # pyright: ignore[reportArgumentType] - JSON
                    before.next_split_id,
                )
            except (ConfigurationError, DataError) as error:
                self._host.fail(error.code, str(error), restart_helps=False)
            except Exception as error:  # noqa: BLE001 - foreign code; the job can go on without
                problem = str(error) if isinstance(error, LaminarError) else repr(error)
                self._host.post(lambda: self._on_failed(source, problem))
            else:
                self._host.post(lambda: self._on_found(source, found))

        return run

    def _on_failed(self, source: _Running, problem: str) -> None:
        source.is_busy = False
        source.due_ms = self._host.monotonic_ms() + source.pause_ms
        _, longest_ms = RETRY_PAUSE_MS
        source.pause_ms = min(2 * source.pause_ms, longest_ms)
        self._report(source, [f"the discovery did not succeed and is tried again: {problem}"])

    def _on_found(self, source: _Running, found: Found) -> None:
        source.is_busy = False
        source.took_ms = self._host.monotonic_ms() - source.began_ms
        source.late_count = found.late_count
        source.pause_ms = RETRY_PAUSE_MS[0]
        source.due_ms = self._host.monotonic_ms() + source.discovering.discovery.interval_ms
        self._report(source, found.problems)
        ids: list[int] = found.splits.column("split_id").to_pylist()
        splits = [FoundSplit(*pair) for pair in zip(ids, rows_left(found.splits), strict=True)]
        event = split_book.Found(splits, found.state, found.complete)
        source.book, effects = split_book.step(source.book, event)
        place = {split_id: n for n, split_id in enumerate(ids)}
        for effect in effects:
            match effect:
                case split_book.AddSplits(worker, split_ids):
                    rows = [place[split_id] for split_id in split_ids]
                    self._send(source, worker, found.splits.take(pa.array(rows, pa.int64())))
                case split_book.NothingMore():
                    for worker in self._workers:
                        self._host.send(worker, self._message(source, "", complete=True))
                case split_book.KeepState():
                    pass

    def _send(self, source: _Running, worker: int, splits: pa.Table) -> None:
        for start in range(0, splits.num_rows, MESSAGE_SPLITS_MAX):
            part = encode_splits(splits.slice(start, MESSAGE_SPLITS_MAX))
            self._host.send(worker, self._message(source, part, complete=False))

    def _message(self, source: _Running, splits: str, *, complete: bool) -> AddSplits:
        return AddSplits(
            generation=self._generation,
            operator_id=source.operator_id,
            splits=splits,
            complete=complete,
        )

    def _report(self, source: _Running, problems: Sequence[str]) -> None:
        """Report each problem once, as long as it lasts."""
        for problem in problems:
            if problem not in source.problems:
                self._host.notify(
                    SplitsNotFound(
                        time_ms=self._host.now_ms(),
                        generation=self._generation,
                        operator_id=source.operator_id,
                        problem=problem,
                    )
                )
        source.problems = frozenset(problems)


def entry_of(found: FoundSoFar) -> DiscoveryEntry:
    """Return the entry of a manifest."""
    return DiscoveryEntry(
        state=dict(found.state),  # pyright: ignore[reportArgumentType] - JSON
        next_split_id=found.next_split_id,
        complete=found.complete,
    )


def found_so_far(entry: DiscoveryEntry | None, splits: pa.Table) -> FoundSoFar:
    """Return what a checkpoint says was found; ``splits`` are all splits that it contains.

    A checkpoint before format 4 has no entry: its list of splits was pinned, so it is complete.
    """
    if entry is None:
        ids: list[int] = splits.column("split_id").to_pylist()
        return FoundSoFar({}, max(ids, default=-1) + 1, complete=True)
    return FoundSoFar(entry.state, entry.next_split_id, entry.complete)
