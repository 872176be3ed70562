"""Dagster's daemon and a code server, as a deployment runs them, started again when they die."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import yaml
from dagster._core.scheduler.instigation import InstigatorType

from examples.operations.server import free_port, write_home
from laminar_core.resources.names import RECOVERS_TAG
from tests.spark.jobs_under_test import ROOT
from tests.spark.kill_campaign.cells import Kind
from tests.spark.kill_campaign.pauses import VARIABLE

SENSOR = "laminar_recovery"


class DagsterServices:
    """Both services of one stream, and what Dagster's own records say."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = write_home(folder / "dagster")
        self._port = free_port()
        self._workspace = folder / "workspace.yaml"
        server = {"host": "127.0.0.1", "port": self._port, "location_name": "laminar"}
        self._workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
        self._processes: dict[Kind, subprocess.Popen[bytes]] = {}
        self.instance = dg.DagsterInstance.from_config(str(self._home))
        for kind in (Kind.CODE_SERVER, Kind.DAGSTER_DAEMON):
            self.start(kind)

    def start(self, kind: Kind) -> None:
        """Start a service; a service manager does it when one has died."""
        with (self._folder / f"{kind}.log").open("ab") as log:
            self._processes[kind] = subprocess.Popen(
                self._command(kind),
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "DAGSTER_HOME": str(self._home),
                    VARIABLE: str(self._folder / "pauses"),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _command(self, kind: Kind) -> list[str]:
        if kind is Kind.DAGSTER_DAEMON:
            return [sys.executable, "-m", "dagster._daemon", "run", "-w", str(self._workspace)]
        module = "tests.spark.kill_campaign.watched_definitions"
        where = ["-h", "127.0.0.1", "-p", str(self._port), "--location-name", "laminar"]
        return [sys.executable, "-m", "dagster", "code-server", "start", "-m", module, *where]

    def pid(self, kind: Kind) -> int:
        """Return the process of a service."""
        return self._processes[kind].pid

    def reap(self, kind: Kind) -> None:
        """Take note of the end of a service that was killed."""
        self._processes[kind].wait()

    def ticks(self) -> int:
        """Return how often the recovery sensor has looked, as Dagster's records say."""
        states = self.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
        mine = [state for state in states if state.name == SENSOR]
        return sum(
            len(self.instance.get_ticks(state.instigator_origin_id, state.selector_id))
            for state in mine
        )

    def next_tick(self) -> Callable[[], bool]:
        """Return what says whether the recovery sensor has looked since now."""
        before = self.ticks()
        return lambda: self.ticks() > before

    def recoveries(self, generation: int | None = None) -> int:
        """Return how many runs of the recovery there are, of one generation or of all."""
        filters = dg.RunsFilter(tags={} if generation is None else {RECOVERS_TAG: str(generation)})
        runs = self.instance.get_run_records(filters)
        return sum(RECOVERS_TAG in record.dagster_run.tags for record in runs)

    def close(self) -> None:
        """Close the records; the processes end with everything of the stream."""
        self.instance.dispose()
