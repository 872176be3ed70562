"""``laminar run --standby``: wait until the driver of a job is lost, then take the job over."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

from laminar_core.cli.reporting import Reporter
from laminar_core.cli.signals import stop_on_signals
from laminar_core.cli.start_options import START
from laminar_core.driver.events import StandbyEnded, StandbyTakesOver, StandbyWaiting
from laminar_core.driver.options import JobOptions, JobResult
from laminar_core.driver.preflight import check_pipeline
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.driver.standby.decision import (
    End,
    StandbyBounds,
    TakeOver,
    Wait,
    decide_standby,
)
from laminar_core.driver.standby.stops import TakeOverGivenUp
from laminar_core.driver.standby.watch import DriverWatch
from laminar_core.driver.user_code import user_code_sha256
from laminar_core.errors import ConfigurationError, ErrorCode, JobFailedError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.pipeline.config import job_options
from laminar_core.protocol.types import Generation
from laminar_core.records.paths import check_job_name
from laminar_core.spark.sessions import OwnSession
from laminar_core.spark.warm_up import warm_up
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.units import duration_ms

_STAYS = ("rename", "skip_bad")
"""Options of a start that every later one may have, too."""
_ANOTHER_WAS_FASTER = (ErrorCode.UNEXPECTED_GENERATION, ErrorCode.JOB_OWNED)


def refuse_other_starts(values: Mapping[str, Any]) -> None:
    """Verify that nothing else is asked of this start.

    Raises:
        ConfigurationError: it is to go back, to give something up, or to follow a generation.
    """
    for setting in START:
        if setting.name not in _STAYS and values.get(setting.parameter):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"--standby continues where the lost driver was: leave {setting.flag.name} out",
            )


@dataclass(frozen=True, slots=True)
class Standby:
    """The job that a standby waits for, and the way to start Spark for it."""

    pipeline: Pipeline
    start_spark: Callable[[str], SparkSession]
    checkpoint: CheckpointConfig
    config: RunConfig
    reporter: Reporter
    is_warm: bool
    """Start Spark at once: it takes nothing from the driver that runs."""

    def run(self) -> JobResult | None:
        """Wait, and run the job if its driver is lost; None: it was not taken over.

        Raises:
            LaminarError: as ``laminar run``; or the job ended with a failure.
        """
        clock = SystemClock()
        options = job_options(
            self.pipeline.name, self.config.workers or 1, self.checkpoint, self.config
        )
        self._check(options)
        name = check_job_name(options.job)
        store = CheckpointStore.open(self.checkpoint.store, name)
        bounds = self._bounds()
        watch = DriverWatch(store, clock, bounds)
        if isinstance(ended := decide_standby(watch.look(), bounds), End):
            self._end(ended, name, clock)
            return None
        with self._session(name) if self.is_warm else nullcontext() as session:
            # After the session: Spark installs a handler of its own.
            signals = Signals()
            while True:
                decision = watch.wait(lambda: signals.is_over, self._waits(clock))
                if not isinstance(decision, TakeOver):
                    self._end(decision, name, clock)
                    return None
                now_ms = clock.now_ms()
                self.reporter.on_event(
                    StandbyTakesOver(
                        time_ms=now_ms, generation=decision.expected, reason=decision.reason
                    )
                )
                try:
                    with nullcontext(session) if session else self._session(name) as live:
                        return self._take_over(decision, live, signals, clock)
                except TakeOverGivenUp:
                    continue  # The job has ended, as the next look shows.
                except ConfigurationError as error:
                    if error.code not in _ANOTHER_WAS_FASTER:
                        raise
                finally:
                    signals.install()

    def _check(self, options: JobOptions) -> None:
        plan = self.pipeline.plan()
        check_pipeline(plan, options)
        user_code_sha256(plan)  # Reads the source now: it may change before the take-over.

    def _bounds(self) -> StandbyBounds:
        config = self.config
        restart = config.restart
        return StandbyBounds(
            silence_ms=duration_ms(config.standby_timeout),
            start_ms=config.worker_deadlines().register_ms,
            restart_ms=restart.maximum_ms if isinstance(restart, ExponentialDelay) else 0,
        )

    @contextmanager
    def _session(self, name: str) -> Iterator[OwnSession]:
        with OwnSession(lambda: self.start_spark(f"laminar {name}")) as session:
            if self.is_warm:
                warm_up(session.spark, self.config.workers or 1)
            yield session

    def _waits(self, clock: Clock) -> Callable[[Generation | None, Wait], None]:
        def on_wait(generation: Generation | None, wait: Wait) -> None:
            event = StandbyWaiting(
                time_ms=clock.now_ms(),
                generation=generation,
                reason=wait.reason,
                is_warm=self.is_warm,
            )
            self.reporter.on_event(event)

        return on_wait

    def _end(self, decision: End | None, name: str, clock: Clock) -> None:
        reason = "a signal" if decision is None else decision.reason
        if decision is not None and decision.failed:
            raise JobFailedError(
                ErrorCode.RESTARTS_EXHAUSTED,
                f"job {name} is not taken over: {reason}; remove the cause, and start it with "
                "`laminar run`",
            )
        self.reporter.on_event(StandbyEnded(time_ms=clock.now_ms(), reason=reason))

    def _take_over(
        self, decision: TakeOver, session: OwnSession, signals: "Signals", clock: Clock
    ) -> JobResult:
        session.live()  # Its JVM may have died since.
        run = self.config.model_copy(
            update={
                "standby": True,
                "expected_generation": decision.expected,
                "take_over": decision.owner_may_live,
                "actor": self.config.actor.because(f"standby: {decision.reason}"),
            }
        )
        job = self.pipeline.start(
            session, checkpoint=self.checkpoint, run=run, listener=self.reporter.on_event
        )
        stop_on_signals(job, clock)
        if signals.received:
            job.stop()
        return job.result()


class Signals:
    """The signals that came while the standby waited.

    SIGINT and SIGTERM also stop a job that it has just taken over. SIGUSR1 ends the wait and
    nothing else: who sends it need not know whether the standby has become the driver meanwhile.
    """

    def __init__(self) -> None:
        self.received = False
        self._is_retired = False
        signal.signal(signal.SIGUSR1, self._on_retire)
        self.install()

    @property
    def is_over(self) -> bool:
        """Whether the standby is not to wait any more."""
        return self.received or self._is_retired

    def install(self) -> None:
        """Handle them from now on."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.received = True

    def _on_retire(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._is_retired = True
