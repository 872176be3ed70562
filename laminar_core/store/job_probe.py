"""Answer the questions that Kubernetes and other managers of processes ask about a job's driver.

The answer is a decision from the job's status alone. A program reads the exit code of
``laminar status --probe``, or the fields of ``--json``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from laminar_core.store.job_status import DriverStatus, JobStatus

Probe = Literal["live", "ready"]
"""``live``: has the driver in this container not got stuck? ``ready``: do the workers run?"""

SILENCE_MS_MAX: dict[Probe, int] = {"live": 600_000, "ready": 60_000}
"""Ages of a heartbeat that are still allowed. A driver that is not live is killed, so the limit is
much longer: writing the heartbeat may fail for a while because the store fails."""

UNHEALTHY_EXIT_CODE = 1


class ProbeProblem(StrEnum):
    """Why a probe fails."""

    NEVER_RAN = "never-ran"
    ENDED = "ended"
    GONE = "gone"
    STARTING = "starting"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The answer to one probe; ``problem`` is None if it passes."""

    probe: Probe
    problem: ProbeProblem | None
    message: str

    @property
    def exit_code(self) -> int:
        """Return 0 if the probe passes."""
        return 0 if self.problem is None else UNHEALTHY_EXIT_CODE


def answer_probe(status: JobStatus, probe: Probe, silence_ms_max: int) -> ProbeAnswer:
    """Decide whether the probe passes.

    ``live`` fails only for a driver whose process is seen to run, and whose heartbeat is older than
    ``silence_ms_max``. So a driver that waits for the end of another one, that starts, or that was
    replaced by one elsewhere, is never killed for it: it ends by itself if it has to.

    ``ready`` passes while the workers of the newest generation run, on whichever machine.
    """
    driver = status.driver
    if probe == "live":
        return _live(status.job, driver, silence_ms_max)
    problem, message = _unready(status.job, driver, silence_ms_max)
    return ProbeAnswer(probe, problem, message)


def _live(job: str, driver: DriverStatus | None, silence_ms_max: int) -> ProbeAnswer:
    if driver is not None and driver.state == "running" and _is_silent(driver, silence_ms_max):
        return ProbeAnswer("live", ProbeProblem.SILENT, _silence(job, driver))
    return ProbeAnswer("live", None, f"job {job}: no driver here is stuck")


def _unready(
    job: str, driver: DriverStatus | None, silence_ms_max: int
) -> tuple[ProbeProblem | None, str]:
    if driver is None:
        return ProbeProblem.NEVER_RAN, f"job {job} never ran"
    named = f"job {job}, generation {driver.generation}"
    if driver.state == "ended":
        return ProbeProblem.ENDED, f"{named} ended: {driver.outcome}"
    if driver.state == "gone":
        return ProbeProblem.GONE, f"{named}: its process is gone"
    # The progress is empty until each worker has reported.
    if driver.heartbeat_age_ms is None or not driver.progress:
        return ProbeProblem.STARTING, f"{named} is starting"
    if _is_silent(driver, silence_ms_max):
        return ProbeProblem.SILENT, _silence(job, driver)
    return None, f"{named} runs"


def _is_silent(driver: DriverStatus, silence_ms_max: int) -> bool:
    return driver.heartbeat_age_ms is not None and driver.heartbeat_age_ms > silence_ms_max


def _silence(job: str, driver: DriverStatus) -> str:
    silence_s = (driver.heartbeat_age_ms or 0) / 1000
    return f"job {job}, generation {driver.generation}: last sign of life {silence_s:.0f} s ago"
