"""A group of streams: names that Dagster takes, and each stream once."""

from pathlib import Path

import pytest

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.spec import StreamSpec

ORDERS, BIDS = (StreamSpec(name=name, program=Path("p.py")) for name in ("orders", "bids"))


def test_its_streams_share_the_names_of_jobs() -> None:
    group = Group((ORDERS, BIDS), "trading")
    assert group.job_name("stop") == "trading_stop"
    assert list(group) == [ORDERS, BIDS]
    assert group.stream("bids") is BIDS


@pytest.mark.parametrize(
    ("streams", "name", "problem"),
    [
        ((ORDERS, ORDERS), "laminar", "two streams have the name 'orders'"),
        ((), "laminar", "a group needs a stream"),
        ((ORDERS,), "a-b", "'a-b': Dagster's names have letters"),
    ],
)
def test_what_dagster_would_refuse_later_is_refused_with_the_reason(
    streams: tuple[StreamSpec, ...], name: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Group(streams, name)
