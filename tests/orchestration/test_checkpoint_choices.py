"""Forms ask for decisions, and nothing invalid can be launched."""

from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration.checkpoint_choices import (
    Before,
    Newest,
    Numbered,
    restore_request,
    restore_words,
)
from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.resources.names import StreamJob, job_name
from tests.orchestration.launchpad import form_of, problems, scaffold

RESOURCES = {
    "laminar_checkpoints": CheckpointStoreResource(uri=dg.EnvVar("HOME")),
    "laminar_driver": SparkDriverClient(),
    "laminar_launcher": DetachedDriver(),
}
SPEC = StreamSpec(name="payments", program=Path("payments.py"))
DEFINITIONS = dg.Definitions.merge(laminar_definitions(SPEC), dg.Definitions(resources=RESOURCES))
REQUIRED: dict[StreamJob, set[str]] = {
    "start": {"start_from"},
    "verify": {"checkpoint_id"},
    "recover": {"restore"},
    "rollback": {"by"},
    "rescale": {"workers"},
    "import_savepoint": {"savepoint"},
    "export_savepoint": {"checkpoint_id", "target"},
    "savepoint": {"target"},
    "stop": {"how"},
    "mode": {"mode"},
    "pin": {"checkpoint_id"},
    "unpin": {"checkpoint_id"},
    "drill": {"which"},
}
"""Fields that each form asks for; all other forms can be launched as they are."""


def job(name: StreamJob) -> dg.JobDefinition:
    return DEFINITIONS.resolve_job_def(job_name(name))


@pytest.mark.parametrize("known_as", sorted(each.name for each in DEFINITIONS.jobs or ()))
def test_a_form_asks_for_decisions_and_for_nothing_else(known_as) -> None:
    name = known_as.removeprefix("laminar_")
    found = scaffold(DEFINITIONS.resolve_job_def(known_as))
    assert found.keys() <= {"ops"}  # Nothing of resources: another store is no decision of a run.
    wrong = problems(DEFINITIONS.resolve_job_def(known_as), found)
    asked = REQUIRED.get(name, set())
    assert len(wrong) == bool(asked)
    assert all(f'"{field}"' in wrong[0] or f"'{field}'" in wrong[0] for field in asked)
    assert not wrong or wrong[0].startswith("Missing required config entr")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("recover", {"restore": {"newest": {}}}),
        ("recover", {"restore": {"newest": None}}),
        ("recover", {"restore": {"checkpoint": {"number": 42}}}),
        ("recover", {"restore": {"before": {"time": "2026-03-01T12:00:00Z"}}}),
        ("drill", {"which": {"random": {}}}),
        ("drill", {"which": {"random": {"seed": 7}}}),
        ("stop", {"how": {"savepoint": {"target": "/s"}}}),
        ("mode", {"mode": {"overtake": {"after": "5 seconds"}}}),
        ("start", {"start_from": "fresh", "running_driver": "cancel"}),
        ("retention", {"mode": "delete", "policy": {"keep_last": 5, "max_age": None}}),
    ],
)
def test_a_decision_can_be_launched(name, form) -> None:
    assert problems(job(name), form_of(job(name), **form)) == []


@pytest.mark.parametrize(
    ("name", "form", "said"),
    [
        ("recover", {"restore": {}}, "Must specify a field at path root:ops:laminar_recover:con"),
        (
            "recover",
            {"restore": {"newest": {}, "checkpoint": {"number": 1}}},
            "only specify a single field",
        ),
        ("recover", {"restore": {"latest": {}}}, 'unexpected config entry "latest"'),
        ("recover", {"restore": {"newest": {"number": 1}}}, 'unexpected config entry "number"'),
        ("recover", {"restore": {"checkpoint": {}}}, 'Missing required config entry "number"'),
        ("recover", {"restore": {"checkpoint": {"number": "last"}}}, "number"),
        ("recover", {"newest": True}, "newest"),
        ("drill", {"which": {"newest": {"seed": 3}}}, 'unexpected config entry "seed"'),
        ("drill", {"which": "newest"}, "which"),
        (
            "stop",
            {"how": {"cancel": {}, "savepoint": {"target": "/s"}}},
            "only specify a single field",
        ),
        ("stop", {"how": {"savepoint": {}}}, 'Missing required config entry "target"'),
        ("mode", {"mode": {"faster": {}}}, 'unexpected config entry "faster"'),
        ("start", {"start_from": "latest"}, "latest"),
        ("start", {"start_from": "newest", "running_driver": "kill"}, "kill"),
        ("retention", {"mode": "apply"}, "apply"),
        ("retention", {"dry_run": False}, 'unexpected config entry "dry_run"'),
        ("orphans", {"mode": "apply"}, "apply"),
    ],
)
def test_what_is_no_decision_cannot_be_launched(name, form, said) -> None:
    wrong = problems(job(name), form_of(job(name), **form))
    assert any(said in each for each in wrong)


def test_a_run_cannot_be_given_another_store() -> None:
    elsewhere = {"resources": {"laminar_checkpoints": {"config": {"uri": "/elsewhere"}}}}
    (wrong,) = problems(job("checkpoint"), elsewhere)
    assert 'unexpected config entry "uri"' in wrong


def test_a_choice_is_what_the_store_and_the_command_line_are_asked_for() -> None:
    noon = Before(time="1970-01-01T01:00:00+01:00")
    assert restore_request(Newest()) == RestoreRequest()
    assert restore_request(noon) == RestoreRequest(before_ms=0)
    assert restore_words(Newest()) == []
    assert restore_words(noon) == ["--restore-before", "1970-01-01T01:00:00+01:00"]
    assert restore_words(Numbered(number=7)) == ["--restore", "7"]
