"""What is asked for on the command line is what the run, and Spark, are told."""

import click
import pytest
from click.testing import CliRunner

from laminar_core.cli.options import GlobalSettings
from laminar_core.cli.start_options import (
    FAST_START,
    SparkSettings,
    program_options,
    spark_options,
    start_options,
)
from laminar_core.driver.liveness import Deadlines
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.pipeline import RunConfig
from laminar_core.records.actor import Actor

SAID: list[tuple[str, tuple[str, ...], RunConfig, SparkSettings]] = []


@click.command()
@program_options
@start_options
@spark_options
def command(
    *, target: str, settings: tuple[str, ...], config: RunConfig, spark: SparkSettings
) -> None:
    """Remember what was said."""
    SAID.append((target, settings, config, spark))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAMINAR_ACTOR", "ann")
    monkeypatch.delenv("LAMINAR_RUN_ID", raising=False)

    def say(*words: str):
        result = CliRunner().invoke(command, words, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return SAID.pop()

    return say


def test_by_default_nothing_dangerous_is_asked_for(said) -> None:
    target, settings, config, spark = said("job.py")
    assert (target, settings, spark) == ("job.py", (), SparkSettings(workers=2))
    assert config == RunConfig(
        workers=2, restart=ExponentialDelay(attempts=10), actor=Actor("ann", reason="started")
    )


def test_everything_can_be_set(said, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("LAMINAR_RUN_ID", "run-7")
    _, settings, config, spark = said(
        *("job.py", "--set", "a=1", "--set", "b=2", "--workers", "3", "--master", "spark://x:1"),
        *("--conf", "spark.a=b=c", "--job", "mine", "--restarts", "1", "--take-over"),
        *("--expect-generation", "4", "--allow-fresh", "--reset-state", "x", "--reset-state", "y"),
        *("--transport", "curve", "--start-timeout", "20 minutes", "--reason", "to test"),
        *("--silence-timeout", "1 minute", "--progress-timeout", "2 hours"),
        "--require-encryption",
    )
    assert settings == ("a=1", "b=2")
    assert spark == SparkSettings(3, "spark://x:1", (("spark.a", "b=c"),))
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
        actor=Actor("ann", reason="to test", run_id="run-7"),
        deadlines=Deadlines(1_200_000, silence_ms=60_000, progress_ms=7_200_000),
    )
    monkeypatch.chdir(tmp_path)
    config = said("job.py", "--from-savepoint", "s", "--claim")[2]
    assert (config.from_savepoint, config.claim) == (str(tmp_path / "s"), True)
    assert said("job.py", "--restore", "7")[2].restore_id == 7
    time = "2026-03-01T12:00:00Z"
    for name in ("--restore-before", "--before"):
        assert said("job.py", name, time)[2].restore_before == time


@pytest.mark.parametrize(
    "words", [("--expect-generation", "-1"), ("--start-timeout", "soon"), ("--workers", "0")]
)
def test_nonsense_is_refused_with_the_name_of_the_option(said, words) -> None:
    with pytest.raises(click.BadParameter) as caught:
        said("job.py", *words)
    assert words[0] in caught.value.format_message()


@pytest.mark.parametrize(
    ("spark", "master"),
    [
        (SparkSettings(3), "local[3]"),
        (SparkSettings(2, "yarn"), "yarn"),
        (SparkSettings(2, conf=(("spark.master", "spark://x:1"),)), "spark://x:1"),
        (SparkSettings(2, "yarn", (("spark.master", "yarn"),)), "yarn"),
    ],
)
def test_spark_is_started_as_was_said(monkeypatch, spark: SparkSettings, master: str) -> None:
    asked = []
    monkeypatch.setattr(
        "laminar_core.cli.start_options.open_session", lambda *a, **k: asked.append((a, k))
    )
    spark.open("it", GlobalSettings(debug=True))
    conf = {**FAST_START, **dict(spark.conf)}
    assert asked == [((master, "it"), {"conf": conf, "show_logs": True})]
