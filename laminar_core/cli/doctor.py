"""``laminar doctor``: what a cluster lacks for a job, before the job runs on it."""

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.groups import examples
from laminar_core.cli.options import (
    DURATION,
    SETTINGS,
    GroupedCommand,
    config_option,
    json_option,
    option_of,
    options_of,
    taken,
    together,
)
from laminar_core.cli.start_options import open_spark
from laminar_core.cli.target import load_pipeline
from laminar_core.cli.views import print_table
from laminar_core.configuration import Configuration
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.objectstore.opening import absolute_uri
from laminar_core.spark.doctor.examination import Examination, Paths
from laminar_core.spark.doctor.findings import Finding, Plan
from laminar_core.spark.sessions import OwnSession
from laminar_core.units import duration_ms, size_bytes

FAILED_EXIT_CODE = 1
SECTIONS = ("state", "network", "spark")
PLAIN_DAEMON = {"spark.python.daemon.module": "pyspark.daemon"}
"""Spark's own daemon starts on hosts without Laminar as well, so that they can be named."""

_HEAP_DEFAULT = "1g"


def _settings(section: str) -> list[Any]:
    return [setting for setting in SETTINGS.values() if setting.section == section]


@click.command(
    cls=GroupedCommand,
    epilog=examples(
        "laminar doctor --master spark://host:7077 --workers 4 --store s3://bucket/checkpoints",
        "laminar doctor job.py --set input=in --master yarn --store /mnt/store --json",
    ),
)
@click.argument("target", required=False)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the pipeline function; repeatable.",
)
@option_of(SETTINGS["store"], "Job", show_envvar=True)
@config_option
@option_of(SETTINGS["workers"], "Job")
@together(*(options_of(_settings(name), name.capitalize()) for name in SECTIONS))
@click.option(
    "--wait",
    type=DURATION,
    default="30 seconds",
    show_default=True,
    help="How long to wait for as many task slots as there are workers.",
)
@json_option
@click.pass_obj
def doctor(
    settings_of_all: GlobalSettings,
    *,
    target: str | None,
    settings: tuple[str, ...],
    wait: str,
    as_json: bool,
    **values: Any,  # noqa: ANN401 - one for each option
) -> None:
    """Examine a cluster before a job runs on it.

    One short Spark job checks what a job would need: Spark's conditions and task slots, versions on
    each host, the store, the network between all hosts, open files, memory and clocks. With TARGET,
    a file or a module as for `laminar run`, it also checks the paths of sources and sinks. The exit
    code is 1 if something would stop a job.
    """
    given: dict[str, Any] = {name: taken(values, _settings(name)) for name in SECTIONS}
    configuration = Configuration(**values, **given)
    master = configuration.spark.master_for(configuration.workers)
    paths = Paths() if target is None else Paths.of(load_pipeline(target, settings).plan())
    conf = {**configuration.spark.conf, **PLAIN_DAEMON}
    spark = configuration.spark.model_copy(update={"conf": conf})
    examined = configuration.model_copy(update={"spark": spark})
    examination = Examination(
        plan=_plan(configuration, master),
        store_uri=configuration.store and absolute_uri(configuration.store),
        paths=paths,
        transport=configuration.network.transport,
        wait_ms=duration_ms(wait),
    )
    with OwnSession(
        lambda: open_spark(examined, "laminar doctor", settings_of_all, every_core=True)
    ) as session:
        findings = examination.run(session.spark, SystemClock())
    show(findings, as_json=as_json)
    if any(each.result == "failed" for each in findings):
        sys.exit(FAILED_EXIT_CODE)


def _plan(configuration: Configuration, master: str) -> Plan:
    state = configuration.state
    conf, one_host = configuration.spark.conf, master.startswith("local")
    heap = conf.get("spark.driver.memory" if one_host else "spark.executor.memory", _HEAP_DEFAULT)
    return Plan(
        workers=configuration.workers,
        state_bytes=size_bytes(state.memory) if state.backend == "rocksdb" else None,
        heap_bytes=heap_bytes(heap),
    )


def heap_bytes(text: str) -> int:
    """Return the bytes of a size as Spark writes it: ``2g``, ``512m``, or a number of MiB."""
    units = {"k": 10, "m": 20, "g": 30, "t": 40}
    number = text.strip().lower().removesuffix("b")
    unit = number[-1:] if number[-1:] in units else ""
    digits = number.removesuffix(unit)
    return int(digits) << units.get(unit, 20) if digits.isdecimal() else 1 << 30


def show(findings: list[Finding], *, as_json: bool) -> None:
    """Print the findings as a table, or as one JSON object."""
    failed = sum(each.result == "failed" for each in findings)
    if as_json:
        checks = [asdict(each) for each in findings]
        click.echo(json.dumps({"ok": not failed, "checks": checks}, indent=1))
        return
    headings = ("check", "where", "result", "found", "what to do")
    print_table(headings, [tuple(asdict(each).values()) for each in findings])
    say()
    say(f"{failed} of {len(findings)} checks failed" if failed else "a job can run here")
