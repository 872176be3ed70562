"""The job is the example to copy, and reads the same files with and without verification."""

import json
from pathlib import Path

import pytest

from benchmarks.payments_systems.generated import write_note
from benchmarks.payments_systems.job import pipeline
from benchmarks.payments_systems.question import Question, write_rows
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.jobs import payments
from laminar_core.plan.plan import Plan


@pytest.fixture
def question(tmp_path: Path) -> Question:
    write_rows(tmp_path / "rows", 80, 3)
    return Question(str(tmp_path / "rows"), str(tmp_path / "out"), 2)


def source_in(plan: Plan) -> ParquetSource:
    (node,) = plan.sources()
    assert isinstance(node.source, ParquetSource)
    return node.source


def test_it_is_the_example_with_and_without_verification(question: Question) -> None:
    example = payments.pipeline(question.rows, question.output).plan()
    for verify_pages in (True, False):
        plan = pipeline(question, verify_pages=verify_pages).plan()
        assert json.dumps(plan.descriptions()) == json.dumps(example.descriptions())
        assert source_in(plan).verify_pages is verify_pages
        assert source_in(plan).batch_rows == source_in(example).batch_rows


def test_rows_are_generated_if_the_folder_says_so(tmp_path: Path) -> None:
    write_note(tmp_path / "note", 100, 5)
    question = Question(str(tmp_path / "note"), str(tmp_path / "out"), 2)
    (node,) = pipeline(question, verify_pages=True).plan().sources()
    assert node.source.describe()["connector"] == "datagen"
