"""Each page's examples are run by a test; commands that need a job or much time are parsed."""

import re
import shlex
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import click
import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

import laminar_core.orchestration.definitions
import laminar_core.pipeline
from laminar_core.cli.main import laminar
from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.operators import agg, windows
from laminar_core.orchestration import streams
from laminar_core.pipeline import Pipeline
from laminar_core.resources import laminar_resources
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from tests.cli.command_line import CommandLine
from tests.connectors.test_parquet_commit import SCHEMA, stage
from tests.spark.guides import blocks
from tests.store.checkpoints_to_read import write_job

laminar.load_all()  # Tests look at every command.

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
RUN_BY = {
    "add-to-dagster.md": "tests/spark/test_guides.py",
    "cli.md": "tests/test_pages.py",
    "configuration.md": "tests/test_configuration.py",
    "connectors.md": "tests/test_pages.py",
    "custom-connector.md": "tests/spark/test_guides.py",
    "custom-sink.md": "tests/spark/test_guides.py",
    "errors.md": "tests/test_site.py",
    "formats.md": "tests/codec/test_formats_document.py",
    "index.md": "tests/spark/test_guides.py",
    "install.md": "tests/spark/test_guides.py",
    "metrics.md": "tests/metrics/test_document.py",
    "notebook.md": "tests/spark/test_guides.py",
    "operations.md": "tests/orchestration/test_operations.py",
    "orchestration.md": "tests/test_pages.py",
    "pipelines.md": "tests/test_pages.py",
    "process.md": "tests/simulated/test_process_document.py",
    "protocol-proofs.md": "tests/test_pages.py",
    "reading.md": "tests/spark/test_reading.py",
    "recovery.md": "tests/test_pages.py",
    "rescaling.md": "tests/spark/test_guides.py",
    "retention.md": "tests/test_pages.py",
    "savepoints.md": "tests/spark/test_guides.py",
    "storage.md": "tests/test_pages.py",
    "testing.md": "tests/testing/test_document.py",
    "troubleshooting.md": "tests/test_pages.py",
    "tutorial.md": "tests/spark/test_guides.py",
}
RUN_HERE = [page for page, test in RUN_BY.items() if test == "tests/test_pages.py"]
NEEDS_A_JOB = {"run", "recover", "savepoint", "stop", "mode", "top"}
NEEDS_A_JOB_BELOW = {("checkpoints", "take"), ("drills", "run")}
NEEDS_A_MACHINE = {"bench", "doctor", "simulate"}


def commands(page: str) -> Iterator[list[str]]:
    """The words of each call of ``laminar`` in a code block of the page."""
    for block in blocks(page):
        if block.language not in ("bash", "text"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            if not line.startswith(("laminar ", ".venv/bin/laminar ", "nice ")) or "…" in line:
                continue
            words = shlex.split(line, comments=True)
            words = words[next(n for n, word in enumerate(words) if word.endswith("laminar")) :]
            ends = [n for n, word in enumerate(words) if word in (">", "2>&1", "&", "|", "||")]
            yield words[: min(ends, default=len(words))]


def test_every_page_with_examples_has_a_test_that_runs_them() -> None:
    with_examples = {
        page for page in PAGES if {block.language for block in blocks(page)} - {"text", "json"}
    }
    assert with_examples == RUN_BY.keys() & set(PAGES)
    for page, test in RUN_BY.items():
        assert page in (ROOT / test).read_text(), test


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one_that_laminar_understands(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINAR_STORE", "store")
    for words in commands(page):
        command, rest = understood(words[1:])
        try:
            # As below the group: click keeps the help option that a command has first.
            context = command.make_context("laminar", rest, **laminar.context_settings)
        except (click.NoSuchOption, click.MissingParameter):
            raise
        except (click.BadParameter, click.exceptions.Exit):
            continue  # It names a file or a number that is not here, or asks for the version.
        assert context.args == [], words


def understood(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that ``words`` names, and what is left for it."""
    command: click.Command = laminar
    while isinstance(command, click.Group):
        named = next((word for word in words if word in command.commands), None)
        if named is None and "take" in command.commands:  # `laminar savepoint TARGET`
            return command.commands["take"], words
        if named is None:
            break
        command, words = command.commands[named], words[words.index(named) + 1 :]
    return command, words


@pytest.mark.parametrize("page", [page for page in RUN_HERE if [*commands(page)]])
def test_every_command_about_a_job_that_stands_still_succeeds(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    write_job(tmp_path / "build" / "store")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMINAR_STORE", "build/store")
    for block in blocks(page):
        if block.title is not None:
            Path(block.title).write_text(block.text)
    cli, printed = CommandLine(monkeypatch, capsys), ""
    for words in commands(page):
        needs_a_job = words[1] in NEEDS_A_JOB or tuple(words[1:3]) in NEEDS_A_JOB_BELOW
        if not needs_a_job and words[1] not in NEEDS_A_MACHINE:
            answer = cli(*words[1:])
            assert (answer.code, answer.err) == (0, ""), (words, answer)
            printed += answer.out
    shown = [block.text for block in blocks(page) if block.language == "json"]
    if page == "cli.md":
        assert [line for line in "".join(shown).splitlines() if line not in printed] == []


def test_the_programs_of_the_page_about_connectors_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = ParquetSink("output/payments_per_merchant")
    sink.check(SCHEMA)
    sink.committer().commit(1, stage(sink, 0, 5))
    names: dict = {}
    for block in blocks("connectors.md"):
        if block.language == "python":
            exec(compile(block.text, "docs/connectors.md", "exec"), names)
    assert names["table"].num_rows == 5
    assert len(names["files"]) == 1
    _clicks_are_rows_and_letters(names["p"])


def _clicks_are_rows_and_letters(pipeline: Pipeline) -> None:
    for day, lines in (("2026-01-31", b'{"user":"a","page":"/"}\n' * 20), ("2026-02-01", b"bad")):
        folder = Path("data/clicks", f"day={day}")
        folder.mkdir(parents=True)
        (folder / "a.json").write_bytes(lines)
    assert Simulation(pipeline.plan(), parallelism=2).run().rows_in == 21
    good, bad = read_committed("output/good"), read_committed("output/bad")
    assert good.slice(0, 1).to_pylist() == [{"user": "a", "page": "/", "day": date(2026, 1, 31)}]
    assert (good.num_rows, bad["value"].to_pylist()) == (20, [b"bad"])


def test_the_pieces_of_pipelines_fit() -> None:
    """Pieces that run alone have tests: loop, joins, lookups, several inputs, start."""
    at = pa.array([0], pa.timestamp("us", tz="UTC"))
    rows = pa.table({"merchant": ["m"], "paid_at": at, "device": ["d"], "boot": [1], "n": [1]})
    rows = rows.append_column("amount_cents", pa.array([5]))
    source = Pipeline("payments").source("rows", MemorySource([rows]))
    names = {"payments": source, "rows": source, "windows": windows, "agg": agg}
    names |= {"ParquetSink": ParquetSink, "pa": pa, "pc": pc, "Iterator": Iterator}
    clicked = pa.table({"user": ["u"], "clicked_at": at, "page": ["/"]})
    names["clicks"] = Pipeline("clicks").source("rows", MemorySource([clicked]))
    names |= {"SHOPS": MemorySource([rows]), "ONLINE": MemorySource([rows])}
    names |= vars(laminar_core.pipeline)
    pieces = [b.text for b in blocks("pipelines.md") if b.language == "python"]
    alone = [piece for piece in pieces if "import" not in piece and "spark" not in piece]
    assert len(pieces) - len(alone) == 5
    for piece in alone:
        exec(compile(piece, "docs/pipelines.md", "exec"), dict(names))


def test_the_stream_on_the_page_about_dagster_is_the_one_of_the_project() -> None:
    (example,) = [b.text for b in blocks("orchestration.md") if b.text.startswith("LOOP =")]
    names = dict(vars(streams))
    exec(compile(example, "docs/orchestration.md", "exec"), names)
    assert names["LOOP"] == streams.LOOP.model_copy(update={"description": ""})


def test_the_forms_on_the_page_about_dagster_are_those_of_the_jobs_beside_them() -> None:
    defs = laminar_core.orchestration.definitions.defs
    forms = {b.title: yaml.safe_load(b.text) for b in blocks("orchestration.md") if b.title}
    shown = "".join(b.text for b in blocks("orchestration.md") if b.language == "bash")
    calls = re.findall(r"^dagster job execute -m (\S+) -j (\S+) -c (\S+)", shown, re.MULTILINE)
    assert len(calls) == len(forms) == 2
    for module, job, form in calls:
        assert module == laminar_core.orchestration.definitions.__name__
        dg.validate_run_config(defs.resolve_job_def(job), forms[form])


def test_the_choice_on_the_page_about_dagster_can_be_made() -> None:
    section = (ROOT / "docs" / "orchestration.md").read_text().partition("### Forms")[2]
    (example,) = [b for b in blocks("orchestration.md") if b.text in section and not b.title][:1]
    job = laminar_core.orchestration.definitions.defs.resolve_job_def("laminar_recover")
    dg.validate_run_config(job, yaml.safe_load(example.text))


def test_every_job_sensor_and_check_on_the_page_about_dagster_is_there() -> None:
    defs = laminar_core.orchestration.definitions.defs
    page = (ROOT / "docs" / "orchestration.md").read_text()
    there = {job.name for job in defs.resolve_all_job_defs()}
    there |= {each.name for each in (*(defs.sensors or ()), *(defs.schedules or ()))}
    resources = {"laminar_resources", *laminar_resources("s")}
    assert {*re.findall(r"`(laminar_\w+)`", page)} <= there | resources
    checks = {key.name for key in defs.resolve_asset_graph().asset_check_keys}
    section = page.partition("## Checks")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == checks
