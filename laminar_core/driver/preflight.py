"""Checks before Spark starts, which takes seconds and the resources of a cluster.

The supervisor repeats all of them, in case something changed meanwhile.
"""

from laminar_core.codec.key_groups import require_parallelism
from laminar_core.connectors.outlook import Promise
from laminar_core.driver.events import SinkWarning
from laminar_core.driver.listening import NOBODY
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.start import RecoveryManager
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import Clock
from laminar_core.plan.plan import Plan
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.worker.backends import require_backend


def check_start(plan: Plan, options: JobOptions, store: CheckpointStore, clock: Clock) -> None:
    """Verify all that needs neither Spark nor the job's claim; writes nothing.

    Raises:
        ConfigurationError: the job cannot be started as it stands, or a live driver owns it.
        IncompatibleStateError: the savepoint does not fit the pipeline.
        CorruptCheckpointError: the savepoint is damaged.
        StorageUnavailable: the store did not answer.
    """
    check_plan(plan, options, clock.now_ms())
    store.claims.check_claimable(
        wait_ms=clock.wait_ms,
        take_over=options.take_over,
        expected=options.expected_generation,
    )
    audit = AuditLog(store.objects, store.paths, clock.now_ms)
    RecoveryManager(plan, options, store, clock, NOBODY, audit).look()


def check_pipeline(plan: Plan, options: JobOptions) -> None:
    """Verify pipeline and options without a look at a sink's target, which may be made ready by it.

    Raises:
        ConfigurationError: they contradict each other.
        MissingExtraError: state is to be in RocksDB, which is not installed.
    """
    plan.check()
    _refuse_overlap_in_loops(plan, options)
    _refuse_unknown_sources(plan, options)
    require_backend(options.state)
    require_parallelism(options.parallelism, plan.max_parallelism)


def check_plan(plan: Plan, options: JobOptions, now_ms: int) -> list[SinkWarning]:
    """Verify pipeline and options; return the warnings of sinks, as events of ``now_ms``.

    Raises:
        ConfigurationError: they contradict each other, or a sink does not support its rows.
        MissingExtraError: state is to be in RocksDB, which is not installed.
    """
    check_pipeline(plan, options)
    promise = Promise(
        options.checkpoint.interval_ms, options.checkpoint.timeout_ms, options.longest_outage_ms
    )
    warnings: list[SinkWarning] = []
    for vertex in plan.vertices:
        if vertex.sink is not None:
            sink = vertex.sink
            lines = sink.sink.check(vertex.output_schema(), promise)
            warnings += [
                SinkWarning(time_ms=now_ms, sink=sink.operator_id, warning=w) for w in lines
            ]
    return warnings


def _refuse_unknown_sources(plan: Plan, options: JobOptions) -> None:
    names = [node.operator_id for node in plan.sources()]
    for message in options.skip_bad:
        if message.source not in names:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"--skip-bad {message}: the pipeline has no source {message.source}, only "
                f"{', '.join(names)}",
            )


def _refuse_overlap_in_loops(plan: Plan, options: JobOptions) -> None:
    """A head gives checkpoint n up when n+1 comes before n is back from its way round.

    With a way that takes longer than the interval none would ever complete (PROTOCOL 8.5).
    """
    if options.checkpoint.max_concurrent > 1 and plan.loops():
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            "checkpoints of a pipeline with a loop cannot overlap: set max_concurrent to 1",
        )
