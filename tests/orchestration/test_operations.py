"""The runbook: every command in it does what it says, and every alert and act is in it."""

import re
import shutil
from collections.abc import Iterator
from typing import get_args

import pytest
from pyspark.sql import SparkSession

import laminar_core.orchestration.definitions
from laminar_core.cli import start_options
from laminar_core.jobs.payments_data import write_payments
from laminar_core.orchestration.streams import ROOT
from laminar_core.resources.names import StreamJob, job_name
from laminar_core.sensors.alerting.alerts import Anchor
from tests.orchestration.operations_failures import FAILURES, MOUNTED
from tests.orchestration.operations_worked import WORKED
from tests.orchestration.operations_world import Block, World, blocks

DOCUMENT = (ROOT / "docs" / "operations.md").read_text()
BLOCKS = blocks(DOCUMENT)
ALONE = [block for block in BLOCKS if block.state != "spark"]
SPARK = [block.commands for block in BLOCKS if block.state == "spark"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("operations"))


@pytest.fixture
def world(place: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.place)
    monkeypatch.setattr(laminar_core.orchestration.definitions, "defs", place.definitions)
    try:
        yield place
    finally:
        place.end_drivers()
        shutil.rmtree(place.place / "store", ignore_errors=True)


@pytest.mark.parametrize(
    "block", ALONE, ids=[f"{block.heading}-{block.state}-{n}" for n, block in enumerate(ALONE)]
)
def test_every_command_does_what_it_is_for_in_the_trouble_that_it_is_for(
    world: World, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FAILURES[block.state](world, monkeypatch):
        said = world.run(block.commands, exit_code=block.exit_code)
        if (worked := WORKED.get(block.heading)) is not None:
            worked(world, said)


@pytest.mark.parametrize("block", [b for b in ALONE if b.state in MOUNTED])
def test_it_does_so_on_a_real_file_system_too(
    world: World, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MOUNTED[block.state](world, monkeypatch):
        said = world.run(block.commands, exit_code=block.exit_code)
        WORKED[block.heading](world, said)


def test_every_it_worked_of_the_runbook_is_asserted() -> None:
    sections = re.split(r"^#+ ", DOCUMENT, flags=re.MULTILINE)
    claims = {part.partition("\n")[0] for part in sections if "**It worked**" in part}
    with_commands = {block.heading for block in ALONE}
    assert claims & with_commands == WORKED.keys()


@pytest.mark.spark
def test_every_command_that_needs_spark_runs(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, on one job."""

    class Kept:
        """The session of all tests; a command does not end it."""

        def __getattr__(self, name: str) -> object:
            return getattr(spark, name)

        def stop(self) -> None:
            pass

    monkeypatch.setattr(start_options, "open_session", lambda *_, **__: Kept())
    (world.place / "jobs").symlink_to(ROOT / "jobs")
    write_payments(world.place / "build" / "demo" / "input", rows=50_000, files=4, merchants=50)
    said = "".join(map(world.run, SPARK))
    assert "finished" in said


def test_every_alert_has_its_section() -> None:
    headings = re.findall(r"^#+ (.+)$", DOCUMENT, re.MULTILINE)
    anchors = {anchor_of(heading) for heading in headings}
    assert set(get_args(Anchor)) <= anchors


def test_every_act_is_in_it() -> None:
    named = set(re.findall(r"\blaminar_(\w+)\b", DOCUMENT))
    by_sensors = {"run"}
    assert {name for name in get_args(StreamJob) if name not in by_sensors} <= named


def test_every_job_that_is_named_is_there() -> None:
    defs = laminar_core.orchestration.definitions.defs
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    others = {each.name for each in (*(defs.sensors or ()), *(defs.schedules or ()))}
    named = set(re.findall(r"`(laminar_\w+[a-z])`", DOCUMENT))
    assert named <= jobs | others
    assert job_name("start") in named


def test_links_within_and_pictures_are_there() -> None:
    anchors = {anchor_of(h) for h in re.findall(r"^#+ (.+)$", DOCUMENT, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)]+)\)", DOCUMENT):
        path, _, anchor = target.partition("#")
        if not path:
            assert anchor in anchors, target
            continue
        file = ROOT / "docs" / path
        assert file.exists(), target
        if anchor and path.endswith(".md"):
            others = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {anchor_of(h) for h in others}, target


def anchor_of(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
