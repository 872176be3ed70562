"""The builder for pipelines: streams are described lazily, and run when requested.

    p = Pipeline("payments")
    (
        p.source("payments", ParquetSource("in/"))
        .watermark("paid_at", max_delay="1 minute")
        .key_by("merchant")
        .window(windows.tumbling("5 minutes"))
        .aggregate("per-merchant", agg.count(), agg.sum("amount_cents"))
        .sink("totals", ParquetSink("out/"))
    )
    p.run(spark, checkpoint=CheckpointConfig(store="checkpoints/"))

Names given to sources, aggregations and sinks are the identity of their state: a checkpoint finds
its operator by name, so keep a name as long as its state is to survive.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from pyspark.sql import SparkSession

from laminar_core.arguments import require_instance, require_methods
from laminar_core.connectors.base import Sink, Source
from laminar_core.connectors.formats.bad_rows import BadRowPolicy, OnBadRow
from laminar_core.connectors.formats.letters import LETTERS, LETTERS_SCHEMA
from laminar_core.driver.events import JobListener
from laminar_core.driver.options import JobResult
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.terminal import say
from laminar_core.pipeline.config import CheckpointConfig, RunConfig
from laminar_core.pipeline.explain import plan_lines
from laminar_core.pipeline.graph import Node, plan_of
from laminar_core.pipeline.job import StreamingJob
from laminar_core.pipeline.starting import started
from laminar_core.pipeline.stream import Leaving, Stream
from laminar_core.plan.plan import (
    Plan,
    SourceNode,
)
from laminar_core.records.paths import check_job_name, check_operator_id
from laminar_core.spark.sessions import OwnSession
from laminar_core.units import Duration, duration_ms, duration_us


@dataclass(frozen=True, slots=True)
class LettersTo:
    """Bad rows of a source go to this sink, which has a name as every sink has.

    >>> LettersTo("bad-payments", ParquetSink("bad/"))  # doctest: +SKIP
    """

    name: str
    sink: Sink


class Pipeline:
    """A named pipeline under construction."""

    def __init__(self, name: str, *, max_parallelism: int = 128) -> None:
        check_job_name(name)
        self.name = name
        self.max_parallelism = max_parallelism
        self._nodes: list[Node] = []
        self._unnamed: Counter[str] = Counter()

    def source(  # noqa: PLR0913 - a configuration, by keyword
        self,
        name: str,
        source: Source,
        *,
        rows_per_second: float | None = None,
        idle_timeout: Duration | None = None,
        on_bad_row: "OnBadRow | LettersTo" = "fail",
        bad_share_max: str = "1%",
        max_drift: Duration | None = None,
    ) -> "Stream":
        """Read from ``source``.

        ``rows_per_second`` paces all workers together. A worker without rows for ``idle_timeout``
        does not hold event time back until rows come again.

        ``on_bad_row``: what becomes of a message that is no row. ``fail`` stops the job, ``drop``
        counts it, and ``LettersTo`` writes it to a sink, exactly once like the rows. ``letters``
        hands it to ``side("letters")`` for operators and sinks of your own. More than
        ``bad_share_max`` of 10,000 messages in a row stop the job in any case.

        ``max_drift``: a split that is so far ahead of the slowest one in event time is not read
        until that has followed. All sources of the job with a ``max_drift`` share the slowest one.
        The option is for sources whose splits are read side by side, as partitions are, with
        ``watermark`` before any exchange of rows.

        Raises:
            ConfigurationError: there is nothing to read, the share is none, or the source reads
                its splits one after the other and was given a ``max_drift``.
        """
        check_operator_id(name)
        wanted = f'source {name}: give it a source, such as ParquetSource("folder")'
        require_methods(source, ("schema", "discovery", "describe"), wanted)
        if rows_per_second is not None:
            require_instance(rows_per_second, Real, "rows_per_second must be a number")
            rows_per_second = float(rows_per_second)
        if rows_per_second is not None and not rows_per_second > 0:  # Not a number, either.
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"rows_per_second must be positive, not {rows_per_second}"
            )
        idle_ms = None if idle_timeout is None else duration_ms(idle_timeout)
        policy = BadRowPolicy(
            "letters" if isinstance(on_bad_row, LettersTo) else on_bad_row, bad_share_max
        )
        if max_drift is not None and source.reading != "parallel":
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"source {name}: max_drift needs splits that are read side by side, and "
                f"{type(source).__name__} reads one after the other: leave max_drift out",
            )
        drift_us = None if max_drift is None else duration_us(max_drift)
        node = SourceNode(name, source, rows_per_second, idle_ms, policy, drift_us)
        sides = {LETTERS: LETTERS_SCHEMA} if policy.on_bad_row == "letters" else {}
        rows = Stream(self, self.add(Node(source.schema(), source=node, sides=sides)))
        if isinstance(on_bad_row, LettersTo):
            rows.side(LETTERS).rebalance().sink(on_bad_row.name, on_bad_row.sink)
        return rows

    def iterate(
        self,
        stream: "Stream",
        body: "Callable[[Stream], tuple[Stream | Sequence[Stream], Leaving]]",
        *,
        name: str | None = None,
    ) -> "Leaving":
        """Send rows through ``body`` again and again; see ``Stream.iterate``."""
        require_instance(stream, Stream, "iterate takes a stream and a function")
        return stream.iterate(body, name=name)

    def add(self, node: Node) -> Node:
        """Add a node to the graph."""
        self._nodes.append(node)
        return node

    @property
    def nodes(self) -> Sequence[Node]:
        """All sources, operators and sinks so far, in the order of their creation."""
        return tuple(self._nodes)

    def name_for(self, kind: str, name: str | None) -> str:
        """Return the given name, or ``kind-n`` for the n-th unnamed operator of its kind."""
        if name is not None:
            check_operator_id(name)
            return name
        self._unnamed[kind] += 1
        return f"{kind}-{self._unnamed[kind]}"

    def plan(self) -> Plan:
        """Chain operators into vertices and connect these by edges.

        Raises:
            ConfigurationError: a name is used twice, or a stream has no consumer.
        """
        return plan_of(self._nodes, self.max_parallelism)

    def explain(self) -> None:
        """Print the plan: chains of operators, exchanges, state, event time, updates, sinks.

        Raises:
            ConfigurationError: the pipeline cannot run.
        """
        say("\n".join(plan_lines(self.name, self.plan())))

    def start(
        self,
        spark: SparkSession | OwnSession,
        *,
        checkpoint: CheckpointConfig,
        run: RunConfig | None = None,
        listener: JobListener | None = None,
        progress: bool | None = None,
    ) -> "StreamingJob":
        """Start the job in the background; ``listener`` gets the events in order, in a thread.

        Without a listener the job shows its progress in a notebook and on a terminal, and logs
        elsewhere. ``progress=False`` only logs; ``progress=True`` shows it beside a listener, too.

        A session that the caller opened is the caller's: if its JVM dies the job fails. One that
        Laminar opened (``OwnSession``) is opened again.
        A listener that raises does not disturb the job; see ``StreamingJob.listener_failures``.
        """
        require_instance(checkpoint, CheckpointConfig, "checkpoint must be CheckpointConfig(store)")
        require_instance(run, RunConfig | None, "run must be a RunConfig")
        if not isinstance(spark, OwnSession):
            wanted = 'spark must be a session, as of open_session("local[2]", "job")'
            require_methods(spark, ("createDataFrame",), wanted)
        return started(self, spark, checkpoint, run or RunConfig(), listener, progress=progress)

    def run(
        self,
        spark: SparkSession | OwnSession,
        *,
        checkpoint: CheckpointConfig,
        run: RunConfig | None = None,
        listener: JobListener | None = None,
        progress: bool | None = None,
    ) -> JobResult:
        """Run until all inputs have ended, or for ever; see ``start`` for what it shows.

        An interrupt (Ctrl-C, or the stop button of a notebook) stops the job with a last
        checkpoint, a second one ends it at once; then it is raised.

        Raises:
            LaminarError: see ``Supervisor.run``.
            KeyboardInterrupt: it was interrupted, and has ended.
        """
        job = self.start(
            spark, checkpoint=checkpoint, run=run, listener=listener, progress=progress
        )
        return job.result_or_stop()
