"""Options of the commands that start a job, and the configuration that they result in."""

from typing import Any

import click
from pyspark.sql import SparkSession

from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.options import (
    SETTINGS,
    Decorator,
    option_of,
    options_of,
    store_option,
    taken,
    together,
)
from laminar_core.cli.target import folders_of_programs
from laminar_core.configuration import Configuration, StartOptions
from laminar_core.objectstore.opening import absolute_uri
from laminar_core.options import Setting, sections_of, settings_of
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.spark.cores import with_cores
from laminar_core.spark.session import open_session
from laminar_core.store.attribution import actor_of_environment

START = settings_of(StartOptions)
SECTIONS = [name for name in sections_of(Configuration) if name != "retention"]
"""Sections of a run; the other one, retention, is for ``laminar retention``."""

program_options = together(
    click.argument("target"),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Argument of the pipeline function; repeatable.",
    ),
)
"""TARGET and its settings: ``target`` and ``settings``, as ``load_pipeline`` takes them."""


def _settings(section: str) -> list[Setting]:
    return [setting for setting in SETTINGS.values() if setting.section == section]


def section_options(*sections: str) -> Decorator:
    """Return the decorator that adds the job's own options, and those of some sections."""
    return together(
        store_option,
        option_of(SETTINGS["job"], "Job"),
        option_of(SETTINGS["workers"], "Job"),
        *(options_of(_settings(name), name.capitalize()) for name in sections),
    )


start_options = together(
    section_options(*SECTIONS),
    *(option_of(setting, "This start", once=True) for setting in START),
    click.option(
        "--reason", default="started", show_default=True, help="Kept in the job's record."
    ),
)
"""Everything that ``laminar run`` can set; ``configuration_of`` and ``run_config`` take it."""


def configuration_of(values: dict[str, Any], *sections: str) -> Configuration:
    """Take the options that ``section_options`` adds out of ``values``.

    Raises:
        ConfigurationError: two of them do not go together.
    """
    found: dict[str, Any] = {name: taken(values, _settings(name)) for name in sections}
    return Configuration(**taken(values, _settings("")), **found)


def run_config(configuration: Configuration, values: dict[str, Any]) -> RunConfig:
    """Take the options of one start out of ``values``; the environment says who starts it.

    Raises:
        ConfigurationError: two of them do not go together.
    """
    start, reason = taken(values, START), values.pop("reason")
    recovery = configuration.recovery
    start["from_savepoint"] = start["from_savepoint"] and absolute_uri(start["from_savepoint"])
    return RunConfig(
        **start,
        **configuration.network.model_dump(),
        metrics=configuration.metrics,
        workers=configuration.workers,
        job=configuration.job,
        restart=recovery.restart,
        **recovery.model_dump(exclude={"restarts", "savepoints_under"}),
        savepoints_under=tuple(map(absolute_uri, recovery.savepoints_under)),
        actor=actor_of_environment(reason),
    )


def checkpoint_config(configuration: Configuration) -> CheckpointConfig:
    """Return the part about checkpoints, as the library takes it."""
    policy = configuration.checkpoints
    return CheckpointConfig(
        **policy.model_dump(exclude={"keep_last"}),
        store=configuration.store or "",
        state=configuration.state,
        retention=policy.retention,
    )


def open_spark(
    configuration: Configuration, name: str, settings: GlobalSettings, *, every_core: bool = False
) -> SparkSession:
    """Start Spark, or connect to it; ``every_core`` takes all that a cluster has.

    Raises:
        ConfigurationError: there is no Java, or Spark refuses a setting.
    """
    workers = configuration.workers
    master = configuration.spark.master_for(workers)
    conf = configuration.spark.conf
    return open_session(
        master,
        name,
        conf=conf if every_core else with_cores(conf, master, workers),
        show_logs=settings.debug,
        shipped=folders_of_programs() if configuration.spark.ship else None,
    )
