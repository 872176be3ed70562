"""Checks before Spark starts, which takes seconds and the resources of a cluster.

The supervisor repeats all of them, in case something changed meanwhile.
"""

from laminar_core.codec.key_groups import require_parallelism
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
    check_plan(plan, options)
    store.claims.check_claimable(
        wait_ms=clock.wait_ms,
        take_over=options.take_over,
        expected=options.expected_generation,
    )
    audit = AuditLog(store.objects, store.paths, clock.now_ms)
    RecoveryManager(plan, options, store, clock, NOBODY, audit).look()


def check_plan(plan: Plan, options: JobOptions) -> None:
    """Verify pipeline and options.

    Raises:
        ConfigurationError: they contradict each other, or a sink does not support its rows.
        MissingExtraError: state is to be in RocksDB, which is not installed.
    """
    plan.check()
    _refuse_overlap_in_loops(plan, options)
    require_backend(options.state)
    require_parallelism(options.parallelism, plan.max_parallelism)
    for vertex in plan.vertices:
        if vertex.sink is not None:
            vertex.sink.sink.check(vertex.schemas()[-1])


def _refuse_overlap_in_loops(plan: Plan, options: JobOptions) -> None:
    """A head gives checkpoint n up when n+1 comes before n is back from its way round.

    With a way that takes longer than the interval none would ever complete (PROTOCOL 8.5).
    """
    if options.checkpoint.max_concurrent > 1 and plan.loops():
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            "checkpoints of a pipeline with a loop cannot overlap: set max_concurrent to 1",
        )
