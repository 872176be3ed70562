"""Whom the audit log names when a Dagster run acts."""

import dagster as dg
import pytest

from laminar_core.records.actor import Actor, ActorKind
from laminar_core.resources.names import ACTOR_TAG
from laminar_core.resources.run_actor import actor_of, actor_of_run, child_environment
from laminar_core.store.owner import this_process

HERE = f"{this_process().user} in Dagster"
AGAIN = {"dagster/parent_run_id": "0123abcd-5678"}


@pytest.mark.parametrize(
    ("tags", "actor", "kind"),
    [
        ({ACTOR_TAG: "ana", "user": "bo", "dagster/sensor_name": "watch"}, "ana", "person"),
        ({"user": "bo", "dagster/schedule_name": "nightly"}, "bo", "person"),
        ({"dagster/sensor_name": "watch"}, "sensor watch", "sensor"),
        ({"dagster/schedule_name": "nightly"}, "schedule nightly", "schedule"),
        ({}, HERE, "run"),
        ({**AGAIN, ACTOR_TAG: "ana"}, f"{HERE}, run 0123abcd again", "run"),
        ({**AGAIN, "dagster/sensor_name": "watch"}, f"{HERE}, run 0123abcd again", "run"),
        ({**AGAIN, ACTOR_TAG: "ana", "user": "bo"}, "bo", "person"),
    ],
)
def test_a_person_comes_before_an_automation(tags: dict[str, str], actor: str, kind: str) -> None:
    assert actor_of(tags, "run-1") == Actor(actor, ActorKind(kind), run_id="run-1")


def test_a_process_of_the_run_acts_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINAR_AUDIT_KEY", "secret")
    monkeypatch.setenv("LAMINAR_ACTOR", "somebody else")
    run = dg.DagsterRun(job_name="payments_drill", run_id="run-1", tags={ACTOR_TAG: "ana"})
    environment = child_environment(actor_of_run(run))
    assert (environment["LAMINAR_ACTOR"], environment["LAMINAR_RUN_ID"]) == ("ana", "run-1")
    assert environment["LAMINAR_AUDIT_KEY"] == "secret"
