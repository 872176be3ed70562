"""Measures what many streams cost Dagster: ``python -m tests.orchestration.many_streams``.

Each stream has completed 20 checkpoints in one store. First the sensors are evaluated in this
process, as the daemon does it. Then ``dagster dev`` runs for a while, and a page is loaded.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

from examples.operations.browser import browsing, why_no_browser
from examples.operations.client import DagsterClient
from examples.operations.server import free_port, serving, started_for
from laminar_core.host.clock import SystemClock
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.orchestration.many_streams_location import COUNT_VARIABLE, definitions_of, names_of
from tests.store.stores import claim, write

CHECKPOINTS = 20
LOOP_S = 5
"""How often the daemon looks at a sensor whose interval is shorter."""
WINDOW_S = 30
_WORKSPACE = """{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError {
... on RepositoryLocation { repositories { name
  jobs { name isJob tags { key value } }
  schedules { name cronSchedule scheduleState { status } }
  sensors { name sensorState { status } }
  assetNodes { id groupName assetKey { path } }
} } } } } } }"""


def main(arguments: list[str]) -> None:
    """Measure, and print one JSON object per step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--serve-s", type=int, default=60, help="0: no dagster dev")
    parser.add_argument("--no-ticks", action="store_true", help="only dagster dev")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        fill(place, asked.streams)
        if not asked.no_ticks:
            show("in this process", in_this_process(place, asked.streams))
        if asked.serve_s:
            show("dagster dev", served(place, asked.streams, asked.serve_s))


def show(step: str, figures: dict[str, Any]) -> None:
    """Print the figures of one step."""
    sys.stdout.write(f"{json.dumps({'step': step, **figures})}\n")
    sys.stdout.flush()


def fill(place: Path, count: int) -> None:
    """Write the store: each stream is claimed by this process, and has its checkpoints."""
    for name in names_of(count):
        store = CheckpointStore.open(str(place / "store"), name)
        generation = claim(store)
        for checkpoint_id in range(1, CHECKPOINTS + 1):
            written = write(store, checkpoint_id, generation)
            store.manifests.publish(written.model_copy(update={"job": name}))


def in_this_process(place: Path, count: int) -> dict[str, Any]:
    """Load the definitions, and evaluate every sensor: cold, until all is reported, then warm."""
    with timed() as load:
        repository = definitions_of(count, place).get_repository_def()
        sensors = list(repository.sensor_defs)
    figures: dict[str, Any] = {
        "streams": count,
        "jobs": sum(not name.startswith("__") for name in repository.job_names),
        "sensors": len(sensors),
        "schedules": len(repository.schedule_defs),
        "assets": len(repository.asset_graph.get_all_asset_keys()),
        "load_s": load["wall_s"],
    }
    (place / "instance").mkdir()
    with dg.DagsterInstance.local_temp(str(place / "instance")) as instance:
        ticks = Ticks(instance, repository)
        with timed() as cold:
            rounds = ticks.until_quiet(sensors)
        figures |= {"cold": cold, "cold_rounds": rounds}
        with timed() as warm:
            ticks.round(sensors)
        figures["warm_round"] = warm
        by_kind = ticks.by_kind(sensors)
        figures["warm_tick_s"] = by_kind
        figures["cpu_s_in_30_s"] = round(ticks.work_in(WINDOW_S, sensors), 2)
        figures["checkpoints_reported"] = ticks.materialised
    return figures


class Ticks:
    """Evaluates sensors and writes what they ask for, as the daemon does."""

    def __init__(self, instance: dg.DagsterInstance, repository: Any) -> None:
        self.instance, self.repository = instance, repository
        self.cursors: dict[str, str | None] = {}
        self.cpu_s: dict[str, float] = {}
        self.materialised = 0

    def until_quiet(self, sensors: list[dg.SensorDefinition]) -> int:
        """Return the number of rounds until nothing is reported any more."""
        rounds, before = 0, -1
        while before != self.materialised:
            before = self.materialised
            self.round(sensors)
            rounds += 1
        return rounds

    def round(self, sensors: list[dg.SensorDefinition]) -> None:
        """One tick of every sensor."""
        for sensor in sensors:
            if not isinstance(sensor, dg.RunStatusSensorDefinition):
                with timed() as took:
                    self.tick(sensor)
                self.cpu_s[sensor.name] = took["cpu_s"]

    def tick(self, sensor: dg.SensorDefinition) -> None:
        """One tick."""
        context = dg.SensorEvaluationContext(
            instance_ref=self.instance.get_ref(),
            last_tick_completion_time=None,
            last_run_key=None,
            cursor=self.cursors.get(sensor.name),
            repository_name=None,
            repository_def=self.repository,
            sensor_name=sensor.name,
            resources=dict(self.repository.get_top_level_resources()),
        )
        with context:
            result = sensor.evaluate_tick(context)
        for event in result.asset_events:
            self.materialised += isinstance(event, dg.AssetMaterialization)
            self.instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(
                    request.partitions_def_name, request.partition_keys
                )
        self.cursors[sensor.name] = result.cursor

    def by_kind(self, sensors: list[dg.SensorDefinition]) -> dict[str, float]:
        """Return the CPU seconds of the last tick of each kind, of all sensors of that kind."""
        kinds: dict[str, float] = {}
        for sensor in sensors:
            kind = sensor.name.split("_", 2)[-1] if "stream_" in sensor.name else sensor.name
            kinds[kind] = kinds.get(kind, 0) + self.cpu_s.get(sensor.name, 0)
        return {kind: round(value, 3) for kind, value in kinds.items()}

    def work_in(self, window_s: float, sensors: list[dg.SensorDefinition]) -> float:
        """Return the CPU seconds of all ticks in this time, when nothing is new."""
        return sum(
            self.cpu_s.get(sensor.name, 0)
            * window_s
            / max(sensor.minimum_interval_seconds or 30, LOOP_S)
            for sensor in sensors
        )


def served(place: Path, count: int, serve_s: int) -> dict[str, Any]:
    """Run ``dagster dev``, and measure its CPU, the workspace, and one page."""
    os.environ[COUNT_VARIABLE] = str(count)
    clock, ui = SystemClock(), DagsterClient(free_port())
    begin = time.perf_counter()
    with serving(place, "tests.orchestration.many_streams_location", ui.port, clock):
        while not (ui.is_up() and _workspace_is_there(ui)):
            clock.wait_ms(250)
        figures: dict[str, Any] = {"up_s": round(time.perf_counter() - begin, 1)}
        clock.wait_ms(1000 * serve_s)
        before, steal = _cpu_s(place), psutil.cpu_times().idle
        clock.wait_ms(1000 * WINDOW_S)
        figures["cpu_s_in_30_s"] = round(_cpu_s(place) - before, 1)
        idle_s = psutil.cpu_times().idle - steal
        figures["cpu_idle_share"] = round(idle_s / (WINDOW_S * (psutil.cpu_count() or 1)), 2)
        figures["rss_mb"] = round(
            sum(psutil.Process(p).memory_info().rss for p in started_for(place)) / 1e6
        )
        times: list[float] = []
        for _ in range(3):
            with timed() as took:
                answer = ui.query(_WORKSPACE)
            times.append(took["wall_s"])
        figures |= {"workspace_s": times, "workspace_kb": len(json.dumps(answer)) // 1000}
        figures["log_lines_in_all"] = (place / "dagster.log").read_text().count("\n")
        if why_no_browser() is None:
            with browsing(ui.port) as browser:
                for page, text in (("/jobs", names_of(1)[0]), ("/automation", "")):
                    with timed() as took:
                        browser.page.goto(page)
                        browser.page.get_by_text("laminar" if not text else "_").first.wait_for()
                    figures[f"page {page}"] = took["wall_s"]
    return figures


def _workspace_is_there(ui: DagsterClient) -> bool:
    entries = ui.query(_WORKSPACE)["workspaceOrError"]["locationEntries"]
    return bool(entries) and entries[0]["locationOrLoadError"] is not None


def _cpu_s(place: Path) -> float:
    found = [psutil.Process(pid).cpu_times() for pid in started_for(place)]
    return sum(
        each.user + each.system + each.children_user + each.children_system for each in found
    )


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Measure wall and CPU seconds of a block."""
    took: dict[str, float] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    yield took
    took |= {
        "wall_s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
