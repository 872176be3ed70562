"""Tests over hosts are skipped by name, and fail where they are required."""

import pytest

from tests.hosts.presence import verdict


@pytest.mark.parametrize("takes_minutes", [True, False])
@pytest.mark.parametrize(
    ("demand", "expected"), [(None, "skip"), ("possible", "skip"), ("required", "fail")]
)
def test_where_hosts_cannot_be_made_the_reason_is_named(
    demand: str | None, expected: str, *, takes_minutes: bool
) -> None:
    why = "only root may make namespaces"
    assert verdict(demand, why, takes_minutes=takes_minutes) == (expected, f"no hosts: {why}")


@pytest.mark.parametrize(
    ("demand", "takes_minutes", "expected"),
    [
        (None, False, "run"),
        (None, True, "skip"),
        ("possible", True, "run"),
        ("required", True, "run"),
    ],
)
def test_what_takes_minutes_runs_on_demand(
    demand: str | None, expected: str, *, takes_minutes: bool
) -> None:
    assert verdict(demand, None, takes_minutes=takes_minutes)[0] == expected
