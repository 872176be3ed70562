"""The pages for newcomers do what they say, word for word."""

import logging
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import laminar_core.pipeline
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.pipeline import Pipeline
from tests.spark.guides import Reader, blocks, missing_lines, steps
from tests.spark.served_project import ServedProject

pytestmark = [pytest.mark.early, pytest.mark.spark]


@pytest.mark.large
@pytest.mark.parametrize(
    "page", ["tutorial.md", "custom-connector.md", "custom-sink.md", "install.md"]
)
def test_a_page_works_word_for_word(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.follow(page)


@pytest.mark.large
def test_a_stream_joins_a_dagster_project_word_for_word(tmp_path: Path) -> None:
    project = ServedProject(tmp_path / "shop")
    with Reader(tmp_path) as reader, ExitStack() as elsewhere:
        serve = partial(elsewhere.enter_context, project.serve())
        try:
            reader.follow("add-to-dagster.md", {"start.yaml": serve, "stop.yaml": project.look})
        finally:  # The driver is a process of its own: where the page fails it would live on.
            reader.run("laminar stop --cancel --timeout '30 seconds'")


@pytest.mark.large
@pytest.mark.parametrize("page", ["savepoints.md", "rescaling.md"])
def test_a_page_about_the_job_of_the_tutorial_works_word_for_word(
    page: str, tmp_path: Path
) -> None:
    with Reader(tmp_path) as reader:
        reader.write_files("tutorial.md")
        assert reader.run("python make_orders.py") == ("", 0)
        reader.follow(page)


def test_a_job_is_started_and_stopped_as_the_page_about_pipelines_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = [block.text for block in blocks("pipelines.md") if "job.stop()" in block.text]
    payments = Pipeline("payments")
    payments.source("n", DatagenSource({"n": Sequence()}), rows_per_second=1_000).sink(
        "rows", CollectSink()
    )
    monkeypatch.chdir(tmp_path)
    names = {"payments": payments, "spark": spark, **vars(laminar_core.pipeline)}
    exec(compile(program, "docs/pipelines.md", "exec"), names)
    assert names["job"].result().outcome == "stopped"


def test_a_notebook_shows_what_its_page_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Goal: rows, plan, handle, log and listener are as the page says, in one session."""
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("laminar_core").level
    names = {"spark": spark}
    try:
        for block, shown in steps("notebook.md"):
            if not block.text.startswith("# Not run here"):
                exec(compile(block.text, "docs/notebook.md", "exec"), names)
                assert missing_lines(shown, capsys.readouterr().out) == []
    finally:
        logging.getLogger("laminar_core").setLevel(level)
    assert names["result"].outcome == "finished"
    assert names["result"].collected["totals"].equals(names["rows"])


@pytest.mark.usefixtures("spark")
def test_the_first_program_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (program,) = [block.text for block in blocks("index.md") if block.language == "python"]
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/index.md", "exec"), {})
    assert capsys.readouterr().out == "finished 100000 80\n"
