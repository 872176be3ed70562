"""A stream whose drivers are started for real, without Spark, and the Dagster that starts them."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pytest

from laminar_core.configuration import RecoveryOptions
from laminar_core.errors import LaminarError
from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.launching.dry_run import DryRun
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import GenerationClaim
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.resources.drivers.detached import DetachedStart
from laminar_core.resources.drivers.session import kill_session_of
from laminar_core.resources.names import (
    ACTOR_TAG,
    StreamAsset,
    StreamJob,
    asset_key,
    checkpoint_partitions,
    job_name,
    partition_of,
)
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import is_running
from tests.orchestration.played_driver import Options, PlayedDriver
from tests.store.stores import JOB, claim, complete, damage

STREAM = JOB
ANN = {ACTOR_TAG: "ann"}
_RUN_AS_MODULE = (
    "import runpy; runpy.run_module('tests.orchestration.stream_stand_in', run_name='__main__')"
)


class StartedStream:
    """One stream in a store of its own.

    Its drivers are processes, unless they are played within this one: ``play``.
    """

    def __init__(self, instance: dg.DagsterInstance, place: Path) -> None:
        self.instance, self.place = instance, place
        self.uri = str(place / "store")
        self.store = CheckpointStore.open(self.uri, STREAM)
        self.how = "serves"
        self.launch: Literal["detached", "supervised"] = "detached"
        self.start_timeout = "30 seconds"
        self.played: list[PlayedDriver] = []
        self.meanwhile: list[Callable[[], None]] = []
        """Called just before the next driver claims the job, in place of another process."""

    def play(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let drivers be played within this process, and answer while somebody waits for them."""
        monkeypatch.setattr(
            DetachedDriver, "start", lambda _, *words, **how: self._play(*words, **how)
        )
        monkeypatch.setattr(
            "laminar_core.orchestration.launching.restart.SystemClock", lambda: _Moving(self)
        )
        monkeypatch.setattr("laminar_core.orchestration.launching.recovery.dry_run", self._say)

    def _play(
        self, _stream: str, command: Sequence[str], *, env: Mapping[str, str], **_: object
    ) -> DetachedStart:
        start = DetachedStart(os.getpid(), self.place / "driver.log")

        def tell(event: str, **facts: object) -> None:
            start.events[event] = {"event": event, "time_ms": SystemClock().now_ms(), **facts}

        options = _options(command, env["LAMINAR_ACTOR"])
        driver = PlayedDriver(self.store, self.how, options, SystemClock(), tell)
        while self.meanwhile:
            self.meanwhile.pop()()
        try:
            driver.start()
        except LaminarError as error:
            raise dg.Failure(f"the driver gave up with exit code 2: {error}") from error
        if self.how == "refuses":
            self.store.generations.end(driver.generation, "refused", "")
            raise dg.Failure("the driver gave up with exit code 2: no column merchant")
        driver.run()
        self.played.append(driver)
        return start

    def _say(self, _spec: object, _uri: str, _env: object, words: Sequence[str]) -> DryRun:
        problems = [{"message": "loops cannot be rescaled"}] if self.how == "loops" else []
        verdict = "refuse" if problems else "restore"
        report = {"job": STREAM, "verdict": verdict, "problems": problems, "words": list(words)}
        return DryRun({**report, "checkpoint": {"checkpoint_id": 1}})

    # --- what was there before ------------------------------------------------------------------

    def has_run(self, checkpoints: int) -> None:
        """Its driver completed some and is dead."""
        generation = claim(self.store)
        for checkpoint_id in range(1, checkpoints + 1):
            complete(self.store, checkpoint_id, generation)
        self.kill(generation)
        keys = [partition_of(number) for number in range(1, checkpoints + 1)]
        self.instance.add_dynamic_partitions(str(checkpoint_partitions(STREAM).name), keys)

    def kill(self, generation: int) -> None:
        """It was this process that claimed it: now it was another one, which is gone."""
        key = self.store.paths.claim(Generation(generation))
        found = self.claim_of(generation)
        owner = found.owner.model_copy(update={"pid_start_time": 1})
        self.store.objects.delete(key)
        self.store.objects.put(key, found.model_copy(update={"owner": owner}).to_bytes())

    def damage(self, checkpoint_id: int) -> str:
        path = self.store.manifests.read(CheckpointId(checkpoint_id)).subtasks[0].segments[0].path
        damage(self.store, self.store.paths.absolute(path), "rotten")
        return path

    # --- Dagster --------------------------------------------------------------------------------

    @property
    def spec(self) -> StreamSpec:
        return StreamSpec(
            name=STREAM,
            program=Path(__file__).with_name("stream_stand_in.py"),
            arguments={"how": self.how},
            launch=self.launch,
            recovery=RecoveryOptions(start_timeout=self.start_timeout),
            laminar=(sys.executable, "-c", _RUN_AS_MODULE),
        )

    def definitions(self) -> dg.Definitions:
        resources = {
            "laminar_checkpoints": CheckpointStoreResource(uri=self.uri),
            "laminar_driver": SparkDriverClient(jvm_grace_s=0),
            "laminar_launcher": DetachedDriver(
                log_directory=str(self.place / "drivers"),
                stop_grace_s=1,
            ),
        }
        return dg.Definitions.merge(
            laminar_definitions(self.spec), dg.Definitions(resources=resources)
        )

    def run(self, name: StreamJob, config: Mapping[str, Any]) -> dg.ExecuteInProcessResult:
        job = self.definitions().resolve_job_def(job_name(name))
        return job.execute_in_process(
            instance=self.instance,
            run_config={"ops": {job_name(name): {"config": dict(config)}}},
            tags=ANN,
            raise_on_error=False,
        )

    def start(self, start_from: str = "fresh", **config: Any) -> dg.ExecuteInProcessResult:
        return self.run("start", {"start_from": start_from, **config})

    def recovery(self, checkpoint_id: int, **config: Any) -> dg.ExecuteInProcessResult:
        restore = {"checkpoint": {"number": checkpoint_id}}
        return self.run("recover", {"restore": restore, "reason": "a test", **config})

    def materialized(self, name: StreamAsset) -> list[dg.AssetMaterialization]:
        """Newest first."""
        records = self.instance.fetch_materializations(asset_key(STREAM, name), limit=9).records
        return [r.asset_materialization for r in records if r.asset_materialization is not None]

    def facts(self, name: StreamAsset) -> dict[str, Any]:
        """Return the metadata of the newest materialisation."""
        return {k: v.value for k, v in self.materialized(name)[0].metadata.items()}

    # --- the store ------------------------------------------------------------------------------

    def claim_of(self, generation: int) -> GenerationClaim:
        found = self.store.generations.summaries()[generation - 1].claim
        assert found is not None
        return found

    @property
    def bases(self) -> list[int | None]:
        """Return the checkpoint that each generation started from."""
        return [base.checkpoint_id for base in self.store.generations.bases()]

    @property
    def living(self) -> list[int]:
        """Generations whose driver runs."""
        return [
            g.generation
            for g in self.store.generations.summaries()
            if g.claim and g.end is None and is_running(g.claim.owner)
        ]

    def audited(self) -> list[tuple[str, str]]:
        records = AuditLog(self.store.objects, self.store.paths, lambda: 0).records()
        return [(record.action, record.actor) for record in records]

    def end(self) -> None:
        for generation in self.store.generations.summaries():
            if generation.claim:
                with suppress(ProcessLookupError):
                    kill_session_of(generation.claim.owner)


class _Moving(SystemClock):
    """While somebody waits, the driver that runs looks at what it was asked for."""

    def __init__(self, stream: StartedStream) -> None:
        self._stream = stream

    def wait_ms(self, duration_ms: float) -> None:
        del duration_ms
        for driver in self._stream.played[-1:]:
            driver.look()


def _options(command: Sequence[str], actor: str) -> Options:
    def word(name: str) -> str | None:
        return command[command.index(name) + 1] if name in command else None

    def number(name: str) -> int | None:
        found = word(name)
        return None if found is None else int(found)

    return Options(
        number("--workers"),
        number("--restore"),
        number("--expect-generation"),
        word("--reason") or "",
        actor,
        "--take-over" in command,
    )


def line_of(result: dg.ExecuteInProcessResult) -> str:
    """The line with which a failed run ends."""
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    data = failure.step_failure_data
    assert data.user_failure_data is not None, data.error
    return str(data.user_failure_data.description)
