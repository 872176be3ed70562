"""The page about metrics has all of them, and its examples are right."""

import runpy
from pathlib import Path

import yaml
from click.testing import CliRunner

from laminar_core.cli.main import laminar
from laminar_core.configuration import Configuration
from tests.metrics.test_dashboard import ALERTS, unknown
from tests.spark.guides import blocks

ROOT = Path(__file__).parents[2]


def test_the_table_is_that_of_the_catalogue() -> None:
    program = runpy.run_path(str(ROOT / "scripts" / "metrics_table.py"))
    page = program["PAGE"].read_text()
    assert program["updated"](page) == page
    assert all(program["row"](metric) in page for metric in program["METRICS"])


def test_examples_of_files_can_be_read(tmp_path: Path) -> None:
    (scrape,) = [each for each in blocks("metrics.md") if each.language == "yaml"]
    assert yaml.safe_load(scrape.text)["rule_files"] == [ALERTS.name]
    (options,) = [each for each in blocks("metrics.md") if each.language == "toml"]
    (tmp_path / "laminar.toml").write_text(options.text)
    metrics = Configuration.read(tmp_path / "laminar.toml").metrics
    assert metrics.otlp_endpoint == "http://localhost:4318"


def test_commands_of_the_page_have_the_options_that_it_gives_them() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    for command in ("run", "top"):
        said = CliRunner().invoke(laminar, [command, "--help"]).output
        words = [
            line.split() for line in text.splitlines() if line.startswith(f"laminar {command}")
        ]
        options = {word for line in words for word in line if word.startswith("--")}
        assert options
        assert all(option in said for option in options)


def test_every_metric_that_the_page_names_exists() -> None:
    assert unknown((ROOT / "docs" / "metrics.md").read_text()) == set()
