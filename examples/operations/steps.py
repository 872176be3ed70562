"""The steps of the operations demo: each acts on the job and waits for the effect."""

from dataclasses import dataclass
from pathlib import Path

from examples.operations.client import DagsterClient, Run
from examples.operations.job import JobWatch, alignment_s, duration_s, in_words
from examples.operations.pipeline import set_brake
from examples.operations.stage import Stage, StepFailed
from laminar_core.orchestration import StreamSpec
from laminar_core.records.manifest import CheckpointManifest, GenerationBase
from laminar_core.resources.names import (
    ACTOR_TAG,
    STREAM_FIELD,
    GroupSensor,
    StreamCheck,
    StreamJob,
    check_key,
    checkpoint_key,
    job_name,
    partition_of,
    schedule_name,
    sensor_name,
)
from laminar_core.sensors.observer.checkpoint_reports import INTEGRITY_CHECK
from laminar_core.store.generation_summary import GenerationSummary
from laminar_core.units import duration_ms

BRAKE_ROW_US = 200.0
"""Five thousand rows a second and worker, where twenty thousand come."""

SLOW_S = FAST_S = 1.0
"""A checkpoint is slow if its barriers align for longer, fast if all of it takes less."""

FASTER = 3
"""On a busy machine, the factor by which a fast checkpoint is shorter than a slow one."""

SETTLED = 3
"""Consecutive fast checkpoints required: a single one may be luck."""

_DAMAGE = "sha256 differs"
"""The check's expected message for a flipped bit."""

DOUBT_S = 15.0
"""Long enough for three more looks of a sensor that would start a second recovery."""


@dataclass(slots=True)
class Operations:
    """One demonstration on a running Dagster; the methods are called in the order of the file."""

    stage: Stage
    ui: DagsterClient
    job: JobWatch
    spec: StreamSpec
    brake: Path
    unaligned_checkpoint: int = 0
    """One that was taken while an operator was slow; 0 as long as there is none."""

    damaged_checkpoint: int = 0
    _fast_s: float = FAST_S

    @property
    def patience_s(self) -> float:
        """How long to wait for anything, in seconds: what the stream itself is allowed to take.

        That is its silence until it counts as dead, a start, and a checkpoint after it.
        """
        allowed_ms = duration_ms(self.spec.alerts.heartbeat_max) + self.spec.start_timeout_ms
        return (allowed_ms + duration_ms(self.spec.checkpoints.timeout)) / 1000

    def start(self) -> None:
        """Start the job as the launchpad does."""
        begun_ms = self.stage.clock.monotonic_ms()
        config = self._config("start", start_from="fresh", reason="demonstration")
        run = self._launch("start", config)
        self.stage.note(f"run {run.run_id[:8]} started it and is over: the driver is detached")
        self._checkpoints(SETTLED, "its first checkpoints")
        pid = self.job.driver_pid()
        took_s = self.stage.since_s(begun_ms)
        self.stage.note(f"driver {pid} runs, {SETTLED} checkpoints after {took_s:.1f} s")
        newest = self.job.newest(1)[0].checkpoint_id
        self._reported(newest)
        self.stage.note(f"checkpoint {newest} is a partition of [{self.spec.name}, checkpoint]")

    def slow_down(self) -> None:
        """Make an operator slow; the sensor has to force unaligned checkpoints, in the same run."""
        generation = self._generation()
        changes = len(self.job.mode_changes())
        set_brake(self.brake, BRAKE_ROW_US)
        braked_ms, at_ms = self.stage.clock.monotonic_ms(), self.stage.clock.now_ms()
        slow = self.stage.wait_until(
            "a slow checkpoint",
            lambda: next((m for m in self._since(at_ms) if alignment_s(m) > SLOW_S), None),
            self.patience_s,
            lambda: in_words(self._since(at_ms)),
        )
        self.stage.note(
            f"checkpoint {slow.checkpoint_id}, {slow.mode}: {duration_s(slow):.2f} s, of which its "
            f"barriers wait {alignment_s(slow):.2f} s"
        )
        self._fast_s = max(FAST_S, duration_s(slow) / FASTER)
        self._mode_changed(changes, braked_ms, "the brake")
        self.unaligned_checkpoint = self._settled("unaligned", generation)

    def speed_up(self) -> None:
        """Take the brake away; the sensor has to flip back."""
        generation = self._generation()
        changes = len(self.job.mode_changes())
        set_brake(self.brake, None)
        self._mode_changed(changes, self.stage.clock.monotonic_ms(), "the brake was gone")
        self._settled("aligned", generation)

    def kill(self) -> None:
        """Kill the driver; the recovery sensor has to start the job exactly once."""
        dead, before = self._generation(), len(self._recoveries())
        killed_ms = self.stage.clock.monotonic_ms()
        self.stage.note(f"SIGKILL for driver {self.job.kill_driver()} of generation {dead}")
        base = self._recovered(dead, killed_ms)
        self.stage.note(f"it continues from checkpoint {base.base_checkpoint_id}")
        self._once(dead, before)

    def retain(self) -> None:
        """Wait until retention has run on its schedule and deleted something."""
        tags = [{"key": "dagster/schedule_name", "value": schedule_name("retention")}]
        deleted = self.stage.wait_until(
            "retention on its schedule",
            lambda: self._deleted() if self.ui.runs(tags=tags, statuses=["SUCCESS"]) else None,
            self.patience_s,
            lambda: str([(r.job, r.status) for r in self.ui.runs(tags=tags, limit=3)]),
        )
        runs = self.ui.runs(tags=tags, limit=50)
        done = [run for run in runs if run.status == "SUCCESS"]
        self.stage.note(f"{len(done)} of {len(runs)} runs are done; {deleted} checkpoints are gone")

    def drill(self) -> None:
        """Run a restore drill of the newest checkpoint, as the schedule would."""
        run = self._launch("drill", self._config("drill", which={"newest": {}}))
        took_s = (run.ended_s or 0) - (run.started_s or 0)
        self.stage.note(
            f"run {run.run_id[:8]} restored a checkpoint beside the job: {took_s:.1f} s"
        )
        self._expect_check("restorable", "passed")

    def damage(self) -> None:
        """Kill the driver and flip bits: recovery has to skip damaged checkpoints.

        Damaged are the newest checkpoint, and the newest that Dagster knows, which is some seconds
        older.
        """
        dead, before = self._generation(), len(self._recoveries())
        reported = self._newest_reported()
        self._keep(reported)
        killed_ms = self.stage.clock.monotonic_ms()
        pid = self.job.kill_driver()
        newest = self.job.newest(1)[0].checkpoint_id
        for checkpoint_id in sorted({reported, newest}):
            path = self.job.damage(checkpoint_id)
            self.stage.note(f"one bit flipped in {path.name} of checkpoint {checkpoint_id}")
        self.damaged_checkpoint = reported
        self.stage.note(f"SIGKILL for driver {pid} of generation {dead}")
        base = self._recovered(dead, killed_ms)
        if base.base_checkpoint_id in {None, reported, newest}:
            raise StepFailed(f"generation {base.generation} started from a damaged checkpoint")
        continues = f"continues from {base.base_checkpoint_id}"
        self.stage.note(f"generation {base.generation} passed by what is damaged and {continues}")
        self._once(dead, before, blocked_max=len({reported, newest}))
        verify = self._config("verify", checkpoint_id=reported)
        self._launch("verify", verify, expected="FAILURE")
        self._expect_check(INTEGRITY_CHECK, "failed", partition_of(reported), _DAMAGE)

    def stop(self) -> None:
        """Stop it with a last checkpoint; a job that ended by itself is not recovered."""
        generation = self._generation()
        self._launch(
            "stop", self._config("stop", how={"checkpoint": {}}, reason="the demonstration is over")
        )
        newest = self.job.generation()
        end = newest.end if newest else None
        if end is None:
            raise StepFailed(f"generation {generation} has not ended")
        self.stage.note(f"generation {generation}: {end.outcome}, {end.reason}".rstrip(", "))

    # What steps have in common.

    def _config(self, name: StreamJob, **values: object) -> dict[str, object]:
        form = {STREAM_FIELD: self.spec.name, **values}
        return {"ops": {job_name(name): {"config": form}}}

    def _launch(
        self,
        name: StreamJob,
        config: dict[str, object],
        *,
        expected: str = "SUCCESS",
    ) -> Run:
        job, tags = job_name(name), {ACTOR_TAG: "operations-demo"}
        run_id = self.ui.launch(job, config, tags=tags)
        run = self.stage.wait_until(
            f"run {run_id[:8]} of {job}",
            lambda: found if (found := self.ui.run(run_id)).is_over else None,
            self.patience_s,
            lambda: self.ui.run(run_id).status,
        )
        if run.status != expected:
            why = self.ui.why_failed(run_id) if run.status == "FAILURE" else ""
            raise StepFailed(f"run {run_id} of {job} ended with {run.status}: {why}")
        return run

    def _generation(self) -> int:
        newest = self.job.generation()
        if newest is None or newest.end is not None:
            raise StepFailed("the job is not running")
        return newest.generation

    def _since(self, at_ms: int) -> list[CheckpointManifest]:
        newest = self.job.generation()
        return self.job.since(newest.generation, at_ms) if newest else []

    def _checkpoints(self, count: int, what: str) -> None:
        self.stage.wait_until(
            what,
            lambda: True if len(self._since(0)) >= count else None,
            self.patience_s,
            lambda: in_words(self._since(0)),
        )

    def _reported(self, checkpoint_id: int) -> None:
        partition = partition_of(checkpoint_id)
        self.stage.wait_until(
            f"checkpoint {checkpoint_id} in Dagster",
            lambda: partition in self.ui.partitions(checkpoint_key(self.spec.name)) or None,
            self.patience_s,
            lambda: self._last_words("checkpoint_reporter"),
        )

    def _keep(self, checkpoint_id: int) -> None:
        kept = {"checkpoint_id": checkpoint_id, "reason": "to be looked at"}
        self._launch("pin", self._config("pin", **kept))
        self.stage.note(f"checkpoint {checkpoint_id} is pinned: retention leaves it alone")

    def _newest_reported(self) -> int:
        there = {partition_of(each) for each in self.job.store.manifests.ids()}
        known = there & self.ui.partitions(checkpoint_key(self.spec.name))
        if not known:
            raise StepFailed("Dagster knows none of the checkpoints")
        return int(max(known))

    def _mode_changed(self, changes: int, since_ms: float, what: str) -> None:
        command = self.stage.wait_until(
            "the alignment sensor",
            lambda: found[-1] if len(found := self.job.mode_changes()) > changes else None,
            self.patience_s,
            lambda: f"{self._last_words('alignment')}; {in_words(self.job.newest(3)[::-1])}",
        )
        after_s = self.stage.since_s(since_ms)
        said = command.model_dump()["action"]["mode"]
        self.stage.note(f"mode {said} by {command.actor}, {after_s:.1f} s after {what}")
        self.stage.note(f"because: {command.reason}")

    def _settled(self, mode: str, generation: int) -> int:
        """The next checkpoints are of this mode, fast, and of the same run of the job."""
        since_ms, at_ms = self.stage.clock.monotonic_ms(), self.stage.clock.now_ms()

        def look() -> list[CheckpointManifest] | None:
            newest = self.job.since(generation, at_ms)[-SETTLED:]
            good = [m for m in newest if m.mode == mode and duration_s(m) < self._fast_s]
            return newest if len(good) == SETTLED else None

        fast = self.stage.wait_until(
            f"{SETTLED} fast checkpoints",
            look,
            self.patience_s,
            lambda: in_words(self._since(at_ms)),
        )
        if self._generation() != generation:
            raise StepFailed(f"generation {generation} did not survive it")
        self.stage.note(
            f"after {self.stage.since_s(since_ms):.1f} s: {in_words(fast)}; still generation "
            f"{generation}"
        )
        return fast[-1].checkpoint_id

    def _recovered(self, dead: int, killed_ms: float) -> GenerationBase:
        """The base of the generation after ``dead``, once it completes checkpoints."""

        def look() -> GenerationSummary | None:
            newest = self.job.generation()
            alive = newest is not None and newest.generation > dead and newest.base is not None
            done = alive and any(m.generation > dead for m in self.job.newest(1))
            return newest if done else None

        found = self.stage.wait_until(
            "recovery", look, self.patience_s, lambda: self._last_words("recovery")
        )
        assert found.base is not None
        after_s = self.stage.since_s(killed_ms)
        self.stage.note(
            f"generation {found.generation} completes checkpoints after {after_s:.1f} s"
        )
        return found.base

    def _once(self, dead: int, before: int, *, blocked_max: int = 0) -> None:
        """One run recovers it, also after more looks of the sensor.

        Before it, so many may have been blocked by the check of a damaged checkpoint.
        """
        until_ms = self.stage.clock.monotonic_ms() + 1000 * DOUBT_S
        self.stage.wait_until(
            "a second recovery that must not come",
            lambda: self.stage.clock.monotonic_ms() > until_ms or None,
            DOUBT_S + 5,
            lambda: self._last_words("recovery"),
        )
        runs = self._recoveries()[: -before or None]
        done = [run for run in runs if run.status == "SUCCESS"]
        blocked = len(runs) - len(done)
        if len(done) != 1 or blocked > blocked_max or self._generation() != dead + 1:
            raise StepFailed(f"{len(runs)} runs recover generation {dead}, not one")
        said = f"; {blocked} before it blocked by the check" if blocked else ""
        self.stage.note(f"exactly one run recovers generation {dead}: {done[0].run_id[:8]}{said}")

    def _recoveries(self) -> list[Run]:
        return self.ui.runs(pipelineName=job_name("recover"), limit=50)

    def _deleted(self) -> int | None:
        deleted = sum(each.deleted for each in self.job.store.list_summaries())
        return deleted or None

    def _expect_check(
        self, check: StreamCheck, verdict: str, partition: str | None = None, words: str = ""
    ) -> None:
        key = check_key(self.spec.name, check).asset_key
        said = self.stage.wait_until(
            f"check {check}",
            lambda: s if (s := self.ui.check(key, check, partition)).startswith(verdict) else None,
            self.patience_s,
            lambda: self.ui.check(key, check, partition),
        )
        if words not in said:
            raise StepFailed(f"check {check} {said}")
        self.stage.note(f"check {check} {said}")

    def _last_words(self, sensor: GroupSensor) -> str:
        ticks = self.ui.ticks(sensor_name(sensor), limit=1)
        return f"sensor {sensor}: {ticks[0].said or ticks[0].status}" if ticks else "no tick yet"
