"""Every option can be set in each of four ways, and what is wrong in a file is one line."""

import runpy
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from laminar_core.cli.main import laminar
from laminar_core.cli.options import SETTINGS
from laminar_core.cli.start_options import SECTIONS, checkpoint_config, configuration_of
from laminar_core.configuration import (
    CheckpointsSection,
    Configuration,
    RecoveryOptions,
    SparkOptions,
    StartOptions,
    StateConfig,
    all_settings,
)
from laminar_core.driver.deadlines import Deadlines
from laminar_core.errors import ConfigurationError
from laminar_core.options import Setting, sections_of, settings_of
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.plan.state_options import StateOptions
from laminar_core.retention.config import RetentionConfig
from tests.spark.guides import blocks

laminar.load_all()  # Tests look at every command.

ROOT = Path(__file__).parent.parent

OTHER: dict[str, Any] = {
    "store": "/other",
    "job": "other",
    "workers": 3,
    "checkpoints.interval": "2s",
    "checkpoints.timeout": "3s",
    "checkpoints.sync_timeout": "none",
    "checkpoints.min_pause": "PT5S",
    "checkpoints.max_concurrent": 1,
    "checkpoints.max_uncommitted": 4,
    "checkpoints.tolerable_failures": "none",
    "checkpoints.alignment": "unaligned",
    "checkpoints.max_inflight": "64MB",
    "checkpoints.inflight_compression": "zstd",
    "checkpoints.scrub_rate": "256KiB",
    "checkpoints.keep_last": 9,
    "state.snapshots": "changelog",
    "state.changelog_interval": "500ms",
    "state.segments_max": 3,
    "state.compression": "lz4",
    "state.backend": "rocksdb",
    "state.memory": "64MiB",
    "state.directory": "/scratch",
    "recovery.restarts": 1,
    "recovery.start_timeout": "2h",
    "recovery.connect_timeout": "45 seconds",
    "recovery.silence_timeout": "1 minute",
    "recovery.progress_timeout": "3h",
    "recovery.link_timeout": "20s",
    "recovery.standby_timeout": "30s",
    "recovery.longest_outage": "1 hour",
    "recovery.savepoints_under": ("/a", "/b"),
    "network.transport": "curve",
    "network.require_encryption": True,
    "network.bind_address": "10.0.0.0/8",
    "network.advertised_address": "driver.example",
    "network.ports": "41000-41099",
    "network.receive_memory": "64MiB",
    "spark.master": "yarn",
    "spark.conf": {"spark.a": "b", "spark.c": "d"},
    "spark.ship": True,
    "metrics.prometheus_port": 9_464,
    "metrics.prometheus_address": "10.0.0.1",
    "metrics.otlp_endpoint": "http://collector:4318",
    "metrics.otlp_interval": "1 minute",
    "retention.keep_last": 5,
    "retention.hourly": 1,
    "retention.daily": 2,
    "retention.weekly": 3,
    "retention.max_age": "30d",
    "retention.min_kept": 2,
    "retention.savepoints": "like-others",
    "retention.runs": "announced",
    "retention.unreadable": "delete",
    "retention.left_overs": "report",
    "retention.quarantine": "12h",
    "retention.history_keep": 1000,
    "retention.history_max_age": "90d",
}
"""A value for each option; not the default, where there is another that may stand alone."""

OF_A_STREAM = {"store": "uri of the resource CheckpointStoreResource", "job": "name"}
"""Options that a stream has under another name, or that its deployment sets."""


def of(setting: Setting) -> Any:
    value = OTHER[setting.key]
    return None if value == "none" else value


def shown(value: Any) -> str:
    """Write a value as a variable has it."""
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, tuple):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = "{each}"' for name, each in value.items()) + "}"
    if isinstance(value, tuple):
        return str(list(value))
    return shown(value) if isinstance(value, bool | int) else f'"{value}"'


def effective(words: list[str], setting: Setting, **variables: str) -> tuple[Any, str]:
    """Return what ``laminar config`` gets for one option, and from where."""
    found: list[tuple[Any, str]] = []

    @click.command(params=laminar.commands["config"].params)
    @click.pass_context
    def command(context: click.Context, **values: Any) -> None:
        value = values[setting.parameter]
        source = context.get_parameter_source(setting.parameter)
        assert source is not None
        found.append((value, source.name))

    result = CliRunner().invoke(command, words, env=variables, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return found[0]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAMINAR_CONFIG")
    return tmp_path


def test_every_option_is_tried() -> None:
    assert OTHER.keys() == {setting.key for setting in all_settings()}
    parameters = [setting.parameter for setting in [*all_settings(), *settings_of(StartOptions)]]
    assert len(set(parameters)) == len(parameters)
    assert all(setting.description for setting in all_settings())


@pytest.mark.parametrize("setting", all_settings(), ids=lambda setting: setting.key)
def test_every_option_can_be_set_in_each_way(setting: Setting, empty_folder: Path) -> None:
    words = setting.words(of(setting))
    if setting.section == "retention":
        words[0] = words[0].replace("--", "--retention-", 1)
    section = f"[{setting.section}]\n" if setting.section else ""
    assert effective(words, setting) == (of(setting), "COMMANDLINE")
    variable = {setting.variable: shown(OTHER[setting.key])}
    assert effective([], setting, **variable) == (of(setting), "ENVIRONMENT")
    (empty_folder / "laminar.toml").write_text(
        f"{section}{setting.name} = {toml(OTHER[setting.key])}"
    )
    value, source = effective([], setting)
    assert source == "DEFAULT_MAP"
    assert value == of(setting)
    assert effective([], setting, **variable)[1] == "ENVIRONMENT"
    assert effective(words, setting, **variable)[1] == "COMMANDLINE"


@pytest.mark.parametrize("setting", all_settings(), ids=lambda setting: setting.key)
def test_every_option_can_be_set_in_dagster(setting: Setting) -> None:
    if setting.key in OF_A_STREAM:
        return
    changes = {setting.name: of(setting)}
    values = {setting.section: changes} if setting.section else changes
    spec = StreamSpec.model_validate({"name": "orders", "program": "orders.py", **values})
    words = setting.words(of(setting))
    assert setting.section == "retention" or " ".join(words) in " ".join(spec.command("/store"))


@pytest.mark.parametrize("setting", all_settings(), ids=lambda setting: setting.key)
def test_a_command_has_every_option(setting: Setting) -> None:
    command = laminar.commands["run"]
    if setting.section == "retention":
        command = laminar.commands["retention"].commands["plan"]
    assert setting.parameter in {param.name for param in command.params}


def test_options_of_one_start_are_for_the_command_line_alone() -> None:
    known = {param.name: param for param in laminar.commands["run"].params}
    for setting in settings_of(StartOptions):
        assert known[setting.parameter].envvar is None
        assert setting.key not in SETTINGS


def test_settings_of_spark_are_put_together(empty_folder: Path) -> None:
    (empty_folder / "laminar.toml").write_text('[spark.conf]\n"spark.a" = 4\n"spark.b" = true\n')
    words = ["--conf", "spark.a=5"]
    assert effective(words, SETTINGS["spark.conf"])[0] == {"spark.a": "5", "spark.b": "true"}


def test_a_file_can_be_named(empty_folder: Path) -> None:
    (empty_folder / "laminar.toml").write_text("workers = 3\n")
    (empty_folder / "other.toml").write_text("workers = 4\n")
    assert effective(["--config", "other.toml"], SETTINGS["workers"])[0] == 4
    assert effective([], SETTINGS["workers"], LAMINAR_CONFIG="other.toml")[0] == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store = 5", "store: must be a string, not 5"),
        ("workers = true", "workers: must be a whole number, not True"),
        ("workers = 0", "workers: must be greater than or equal to 1, not 0"),
        ("[checkpoint]", "checkpoint is unknown; there are: workers, checkpoints"),
        ("[checkpoints]\nintervall = '5s'", "checkpoints.intervall is unknown; there are:"),
        ("[checkpoints]\ninterval = 5", "checkpoints.interval: '5' has no unit"),
        ("[checkpoints]\nmax_inflight = '64M'", "checkpoints.max_inflight: '64M' is not a size"),
        ("[checkpoints]\nmax_concurrent = 2", "checkpoints: checkpoints that may turn unaligned"),
        ("[checkpoints]\nkeep_last = 0", "or must be greater than or equal to 1, not 0"),
        ("[state]\nbackend = 'redis'", "state.backend: must be 'memory' or 'rocksdb', not 'redis'"),
        ("[state]\nmemory = '1MB'", "state.memory: must be at least 16MiB, not 1MB"),
        ("[recovery]\nsilence_timeout = '1s'", "must be at least 3 seconds, not 1s"),
        ("[retention]\nmax_age = 'soon'", "retention.max_age: 'soon' is not a duration"),
        ("[metrics]\nprometheus_port = 65536", "must be less than or equal to 65535, not 65536"),
        ("[metrics]\notlp_endpoint = 'collector:4317'", "must begin with http:// or https://"),
        ("[metrics]\notlp_endpoint = 'http://[::1'", "otlp_endpoint: must have a host and"),
        ("[metrics]\notlp_endpoint = 'http://'", "otlp_endpoint: must have a host and"),
        ("[metrics]\notlp_endpoint = 'http://h:99999'", "otlp_endpoint: must have a host and"),
        ("[metrics]\notlp_interval = '100ms'", "must be at least 1 second, not 100ms"),
        ("[spark]\nconf = 5", "spark.conf: must be a table, not 5"),
        ("x =", "Invalid value"),
        pytest.param(f"x = {'[' * 5_000}", "recursion", id="deep"),
        pytest.param(f"x = {'9' * 5_000}", "digits", id="long"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(empty_folder: Path, text: str, said: str) -> None:
    (empty_folder / "laminar.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        effective([], SETTINGS["workers"])
    assert str(caught.value).startswith("laminar.toml: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_example_of_the_documentation_is_read(empty_folder: Path) -> None:
    (example,) = [each for each in blocks("configuration.md") if each.language == "toml"]
    (empty_folder / "laminar.toml").write_text(example.text)
    assert effective([], SETTINGS["state.memory"]) == ("1GiB", "DEFAULT_MAP")


def test_a_file_may_have_the_mark_and_the_ends_of_lines_that_windows_writes(
    empty_folder: Path,
) -> None:
    (empty_folder / "laminar.toml").write_bytes(b"\xef\xbb\xbfworkers = 3\r\n")
    assert effective([], SETTINGS["workers"])[0] == 3


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.toml cannot be read"):
        Configuration.read(Path("nowhere.toml"))


def test_the_defaults_are_those_of_the_runtime() -> None:
    assert StateConfig().options() == StateOptions()
    assert RecoveryOptions().worker_deadlines() == Deadlines()


def test_the_state_reaches_the_runtime() -> None:
    values = {s.name: of(s) for s in all_settings() if s.section == "state"}
    assert StateConfig(**values).options() == StateOptions(
        "changelog", 500, 3, "lz4", "rocksdb", 64 << 20, "/scratch"
    )


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("all", None),
        ("default", RetentionConfig.default()),
        (9, RetentionConfig(keep_last=9, savepoints="like-others")),
    ],
)
def test_what_a_run_keeps(keep, expected) -> None:
    assert CheckpointsSection(keep_last=keep).retention == expected


def test_no_alignment_is_the_default_one() -> None:
    usual, given = CheckpointsSection(), {"alignment": None, "alignment_timeout": None}
    assert CheckpointsSection(**given) == usual
    later = CheckpointsSection(**{**given, "alignment_timeout": "5s"})
    assert later.overtaking().alignment_timeout_ms == 5_000


@pytest.mark.parametrize(
    ("alignment", "timeout_ms"),
    [("30 seconds", 30_000), ("5s", 5_000), ("unaligned", 0), ("aligned", None)],
)
def test_barriers_overtake_after_a_while_at_once_or_never(alignment, timeout_ms) -> None:
    assert CheckpointsSection(alignment=alignment).overtaking().alignment_timeout_ms == timeout_ms


@pytest.mark.parametrize(
    ("spark", "master"),
    [
        (SparkOptions(), "local[3]"),
        (SparkOptions(master="yarn", conf={"spark.executor.instances": "3"}), "yarn"),
        (SparkOptions(conf={"spark.master": "spark://x:1"}), "spark://x:1"),
    ],
)
def test_the_master_is_what_was_asked_for_or_this_host(spark: SparkOptions, master: str) -> None:
    assert spark.master_for(3) == master


def test_what_the_command_line_takes_is_what_a_program_would_write() -> None:
    values = {s.parameter: of(s) for s in all_settings() if s.section != "retention"}
    config = checkpoint_config(configuration_of(values, *SECTIONS))
    assert (config.store, config.interval, config.state.snapshots) == ("/other", "2s", "changelog")
    assert values == {}
    assert set(SECTIONS) == sections_of(Configuration).keys() - {"retention"}


def test_the_tables_of_the_documentation_are_those_of_the_models() -> None:
    program = runpy.run_path(str(ROOT / "scripts" / "configuration_tables.py"))
    page = program["PAGE"].read_text()
    assert program["updated"](page) == page
    assert all(table in page for table in program["tables"]().values())
