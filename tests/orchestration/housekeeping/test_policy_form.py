"""A policy in a form has the fields of a policy."""

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.retention_jobs import build_retention_job
from laminar_core.retention.config import RetentionConfig
from tests.orchestration.housekeeping_bench import SPEC
from tests.orchestration.launchpad import form_of, problems

JOB = build_retention_job(Group((SPEC,)), ManualClock(0))


def test_each_policy_can_be_said_in_full() -> None:
    whole = RetentionConfig().model_dump(mode="json")
    assert len(whole) > 10
    assert problems(JOB, form_of(JOB, policy=whole)) == []
    ages = {"max_age": "30 days", "history_max_age": "1 year", "history_keep": 5}
    assert problems(JOB, form_of(JOB, policy={**whole, **ages})) == []


def test_every_field_is_explained() -> None:
    schema = JOB.get_job_snapshot().config_schema_snapshot.all_config_snaps_by_key.values()
    (policy,) = [s for s in schema if "keep_last" in {field.name for field in s.fields or ()}]
    assert {field.name for field in policy.fields or ()} == set(RetentionConfig.model_fields)
    assert all(field.description for field in policy.fields or ())


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"keep_lst": 3}, "keep_lst"),
        ({"keep_last": "3"}, "keep_last"),
        ({"savepoints": "drop"}, "drop"),
        ({"max_age": 5}, "max_age"),
    ],
)
def test_a_wrong_name_or_word_cannot_be_launched(policy, said) -> None:
    (wrong,) = problems(JOB, form_of(JOB, policy=policy))
    assert said in wrong
