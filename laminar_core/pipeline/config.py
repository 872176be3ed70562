"""What can be set about a run."""

from dataclasses import dataclass, field
from typing import Literal

from laminar_core.checkpoint.coordinator_config import CoordinatorConfig
from laminar_core.operators.windows import Duration, duration_us
from laminar_core.runtime.checkpointing import Deadlines
from laminar_core.runtime.restart import ExponentialDelay, RestartStrategy
from laminar_core.runtime.transport import TransportKind


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Where checkpoints go and when they are taken. Durations as in ``"30 seconds"``."""

    store: str
    """A directory, or a URI such as ``file:///checkpoints``; shared by driver and workers."""
    interval: Duration | None = "10 seconds"
    """Between two triggers; None takes only the last one."""
    min_pause: Duration | None = None
    """Between the end of one checkpoint and the next trigger."""
    timeout: Duration = "10 minutes"
    """A checkpoint that takes longer is given up; the job goes on."""
    max_concurrent: int = 1
    tolerable_failures: int | None = 3
    """Failed checkpoints in a row that the job survives; None: any number."""

    def coordinator_config(self) -> CoordinatorConfig:
        """The same in milliseconds.

        Raises:
            ConfigurationError: a value is out of range.
        """
        return CoordinatorConfig(
            interval_ms=None if self.interval is None else duration_ms(self.interval),
            min_pause_ms=0 if self.min_pause is None else duration_ms(self.min_pause),
            timeout_ms=duration_ms(self.timeout),
            max_concurrent=self.max_concurrent,
            tolerable_failures=self.tolerable_failures,
        )


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything about a run that is not about checkpoints."""

    workers: int | None = None
    """Number of Spark tasks; by default as many as Spark runs at once."""
    job: str | None = None
    """Name of the job in the store; by default the pipeline's."""
    restart: RestartStrategy = field(default_factory=ExponentialDelay)
    transport: TransportKind | Literal["auto"] = "auto"
    """``auto``: unix sockets with a local master, else TCP with CURVE."""
    take_over: bool = False
    """Run although a driver that owns the job may be alive; it is fenced."""
    allow_fresh: bool = False
    """Start empty, and withdraw the output, if checkpoints exist and none can be used."""
    restore_id: int | None = None
    """Go back to this checkpoint; what came after it is withdrawn."""
    actor: str = "laminar"
    reason: str = "started"
    deadlines: Deadlines = field(default_factory=Deadlines)


def duration_ms(duration: Duration) -> int:
    """Whole milliseconds, at least one."""
    return max(duration_us(duration) // 1000, 1)
