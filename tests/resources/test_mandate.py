"""Whom the audit log names when a Dagster run acts."""

import dagster as dg
import pytest

from laminar_core.resources.mandate import RunMandate, actor_of
from laminar_core.resources.names import ACTOR_TAG
from laminar_core.store.owner import this_process

HERE = f"{this_process().user} in Dagster"
AGAIN = {"dagster/parent_run_id": "0123abcd-5678"}


@pytest.mark.parametrize(
    ("tags", "actor"),
    [
        ({ACTOR_TAG: "ana", "user": "bo", "dagster/sensor_name": "watch"}, "ana"),
        ({"user": "bo", "dagster/schedule_name": "nightly"}, "bo"),
        ({"dagster/sensor_name": "watch"}, "sensor watch"),
        ({"dagster/schedule_name": "nightly"}, "schedule nightly"),
        ({}, HERE),
        ({**AGAIN, ACTOR_TAG: "ana"}, f"{HERE}, run 0123abcd again"),
        ({**AGAIN, "dagster/sensor_name": "watch"}, f"{HERE}, run 0123abcd again"),
        ({**AGAIN, ACTOR_TAG: "ana", "user": "bo"}, "bo"),
    ],
)
def test_a_person_comes_before_an_automation(tags: dict[str, str], actor: str) -> None:
    assert actor_of(tags) == actor


def test_a_process_of_the_run_acts_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINAR_AUDIT_KEY", "secret")
    monkeypatch.setenv("LAMINAR_ACTOR", "somebody else")
    run = dg.DagsterRun(job_name="payments_drill", run_id="run-1", tags={ACTOR_TAG: "ana"})
    environment = RunMandate.of(run).environment()
    assert (environment["LAMINAR_ACTOR"], environment["LAMINAR_RUN_ID"]) == ("ana", "run-1")
    assert environment["LAMINAR_AUDIT_KEY"] == "secret"
