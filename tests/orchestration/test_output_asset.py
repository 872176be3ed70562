"""Assets below a stream's output wake up, as the documentation shows it."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness_evaluator import (
    TimeWindowFreshnessPolicyEvaluator as Evaluator,
)
from dagster._core.loader import LoadingContextForTest

from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.resources.names import asset_key
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from tests.sensors.observed import Daemon
from tests.sensors.observer.test_visible_output import show
from tests.sensors.streams import STREAM, Job, stored_job
from tests.spark.guides import blocks

PROGRAM = Path(__file__).with_name("stream_stand_in.py")
OUTPUT = asset_key(STREAM, "output")
HOURS = OutputPartitions(every="hour", start="2026-03-28")


def documented(title: str, output: OutputPartitions | None) -> dg.Definitions:
    """A stream, and the asset below it from ``docs/add-to-dagster.md`` that has this name."""
    (text,) = [b.text for b in blocks("add-to-dagster.md") if f"\ndef {title}(" in b.text]
    names: dict[str, Any] = {"dg": dg, "StreamSpec": StreamSpec, "HERE": PROGRAM.parent}
    exec(compile(text.replace('"totals"', f'"{STREAM}"'), "add-to-dagster.md", "exec"), names)
    below = names[title]
    spec = StreamSpec(name=STREAM, program=PROGRAM, output_partitions=output)
    resources = {
        "laminar_checkpoints": CheckpointStoreResource(uri="s"),
        "laminar_driver": SparkDriverClient(),
        "laminar_launcher": DetachedDriver(),
    }
    ours = dg.Definitions(assets=[below], resources=resources)
    return dg.Definitions.merge(laminar_definitions(spec), ours)


class Automation:
    """Dagster's automation sensor, and the observer of a stream, tick by tick."""

    def __init__(self, instance: dg.DagsterInstance, job: Job, title: str, output=None) -> None:
        outputs = {} if output is None else {STREAM: output}
        sensor = build_checkpoint_reporter({STREAM: AlertPolicy()}, job.clock, outputs=outputs)
        self.daemon = Daemon(instance, sensor, job.store.objects.uri)
        self.definitions = documented(title, output)
        self.title = title
        self._cursor: Any = None

    def requested(self) -> list[str | None]:
        """Partitions for which runs are requested in this tick."""
        self.daemon.ticks()
        found = dg.evaluate_automation_conditions(
            self.definitions,
            self.daemon.instance,
            dg.AssetSelection.assets(self.title),
            cursor=self._cursor,
        )
        self._cursor = found.cursor
        keys = found.get_requested_partitions(dg.AssetKey(self.title))
        return sorted(keys, key=str)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    return job


def test_an_eager_asset_below_the_output_runs_when_rows_are_visible(instance, job: Job) -> None:
    automation = Automation(instance, job, "dashboard")
    job.complete()
    assert automation.requested() == []
    show(job, 3)
    assert automation.requested() == [None]
    assert automation.requested() == []
    show(job, 3)
    assert automation.requested() == [], "no rows, no run"
    show(job, 5)
    assert automation.requested() == [None]


def test_a_day_runs_when_its_last_hour_is_complete(instance, job: Job) -> None:
    automation = Automation(instance, job, "daily_report", HOURS)
    show(job, 3, "22:00")
    assert automation.requested() == []
    show(job, 3, "23:59")
    assert automation.requested() == []
    show(job, 3, "23:59", output_ended=True)
    assert automation.requested() == ["2026-03-28"]
    assert automation.requested() == []


def test_a_freshness_policy_on_the_output_is_met_by_what_the_observer_reports(
    instance, job: Job
) -> None:
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1))
    output = dg.Definitions(assets=[dg.AssetSpec(OUTPUT, freshness_policy=policy)])
    node, evaluator = output.resolve_asset_graph().get(OUTPUT), Evaluator()
    before = asyncio.run(evaluator.evaluate_freshness(LoadingContextForTest(instance), node))
    show(job, 3)
    Automation(instance, job, "dashboard").daemon.ticks()
    after = asyncio.run(evaluator.evaluate_freshness(LoadingContextForTest(instance), node))
    assert (before.name, after.name) == ("UNKNOWN", "PASS")


def test_an_output_with_partitions_is_external_and_the_stream_a_plain_job() -> None:
    definitions = documented("daily_report", HOURS)
    dg.Definitions.validate_loadable(definitions)
    node = definitions.resolve_asset_graph().get(OUTPUT)
    assert node.is_external
    assert node.partitions_def == HOURS.definition
    assert definitions.resolve_job_def("laminar_run").asset_layer.executable_asset_keys == set()
