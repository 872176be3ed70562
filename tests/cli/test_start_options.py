"""The options of the command line reach the run, and Spark."""

import click
import pytest
from click.testing import CliRunner

from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.main import laminar
from laminar_core.cli.start_options import (
    SECTIONS,
    checkpoint_config,
    configuration_of,
    open_spark,
    run_config,
    start_options,
)
from laminar_core.configuration import Configuration, SparkOptions, StateConfig
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.records.actor import Actor

laminar.load_all()  # Tests look at every command.


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMINAR_ACTOR", "ann")
    monkeypatch.delenv("LAMINAR_RUN_ID", raising=False)
    got: list[RunConfig] = []

    @click.command()
    @start_options
    def command(**values) -> None:
        got.append(run_config(configuration_of(values, *SECTIONS), values))
        assert values == {}

    def say(*words: str) -> RunConfig:
        result = CliRunner().invoke(command, ["--store", "s", *words], standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return got.pop()

    return say


def test_by_default_nothing_dangerous_is_asked_for(said) -> None:
    assert said() == RunConfig(
        workers=2, restart=ExponentialDelay(attempts=10), actor=Actor("ann", reason="started")
    )


def test_everything_can_be_set(said, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("LAMINAR_RUN_ID", "run-7")
    config = said(
        *("--workers", "3", "--job", "mine", "--restarts", "1", "--take-over"),
        *("--expect-generation", "4", "--allow-fresh", "--reset-state", "x", "--reset-state", "y"),
        *("--reset-from", "in=beginning", "--rename", "x.a=b"),
        *("--skip-bad", "in:payments/3:7", "--skip-bad", "in:a:0"),
        *("--transport", "curve", "--start-timeout", "20 minutes", "--reason", "to test"),
        *("--silence-timeout", "1 minute", "--progress-timeout", "2 hours"),
        "--require-encryption",
    )
    assert config == RunConfig(
        workers=3,
        job="mine",
        restart=ExponentialDelay(attempts=1),
        transport="curve",
        require_encryption=True,
        take_over=True,
        expected_generation=4,
        allow_fresh=True,
        reset_state=("x", "y"),
        reset_from=("in=beginning",),
        rename=("x.a=b",),
        skip_bad=("in:payments/3:7", "in:a:0"),
        actor=Actor("ann", reason="to test", run_id="run-7"),
        start_timeout="20 minutes",
        silence_timeout="1 minute",
        progress_timeout="2 hours",
    )
    config = said("--from-savepoint", "s", "--claim")
    assert (config.from_savepoint, config.claim) == (str(tmp_path / "s"), True)
    assert said("--restore", "7").restore_id == 7
    time = "2026-03-01T12:00:00Z"
    for name in ("--restore-before", "--before"):
        assert said(name, time).restore_before == time


def test_the_words_of_an_older_launch_mean_the_same() -> None:
    words = [
        *("--start-timeout", "1 hour", "--silence-timeout", "1 minute"),
        *("--progress-timeout", "2 hours", "--require-encryption"),
        *("--checkpoint-interval", "1 second", "--checkpoint-timeout", "1 minute"),
        *("--min-pause", "2 seconds", "--snapshots", "changelog", "--state-backend", "rocksdb"),
        *("--keep-all", "--unaligned", "--scrub-rate", "256 KiB"),
        *("--conf", "spark.executor.memory=4g", "--restore", "7", "--json"),
    ]
    context = laminar.commands["run"].make_context("run", ["job.py", "--store", "s", *words])
    configuration = configuration_of(context.params, *SECTIONS)
    checkpoint = checkpoint_config(configuration)
    assert checkpoint == CheckpointConfig(
        "s",
        interval="1 second",
        timeout="1 minute",
        min_pause="2 seconds",
        alignment="unaligned",
        scrub_rate="256 KiB",
        state=StateConfig(snapshots="changelog", backend="rocksdb"),
    )
    assert configuration.spark.conf == {"spark.executor.memory": "4g"}
    run = run_config(configuration, context.params)
    assert (run.restore_id, run.require_encryption) == (7, True)
    assert run.worker_deadlines() == Deadlines(3_600_000, silence_ms=60_000, progress_ms=7_200_000)
    older = ["job.py", "--store", "s", "--alignment-timeout", "5 seconds"]
    context = laminar.commands["run"].make_context("run", older)
    assert configuration_of(context.params, *SECTIONS).checkpoints.alignment == "5 seconds"


@pytest.mark.parametrize(
    "words", [("--expect-generation", "-1"), ("--start-timeout", "soon"), ("--workers", "0")]
)
def test_nonsense_is_refused_with_the_name_of_the_option(said, words) -> None:
    with pytest.raises(click.BadParameter) as caught:
        said(*words)
    assert words[0] in caught.value.format_message()


def test_spark_is_started_as_was_said(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(
        "laminar_core.cli.start_options.open_session", lambda *a, **k: asked.append((a, k))
    )
    configuration = Configuration(workers=3, spark=SparkOptions(conf={"spark.a": "b"}))
    open_spark(configuration, "it", GlobalSettings(debug=True))
    assert asked == [
        (("local[3]", "it"), {"conf": {"spark.a": "b"}, "show_logs": True, "shipped": None})
    ]
