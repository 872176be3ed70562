"""Barriers overtake where rows in flight could be divided anew, and never inside a loop."""

import pytest

from laminar_core.protocol.edges import PartitioningKind, may_overtake


@pytest.mark.parametrize(
    ("partitioning", "overtakes"),
    [
        (PartitioningKind.FORWARD, False),
        (PartitioningKind.KEYED, True),
        (PartitioningKind.REBALANCE, True),
        (PartitioningKind.BROADCAST, False),
    ],
)
def test_barriers_overtake_rows_that_can_be_divided_anew(
    partitioning: PartitioningKind, *, overtakes: bool
) -> None:
    assert may_overtake(partitioning, loop=None) is overtakes


@pytest.mark.parametrize("partitioning", PartitioningKind)
def test_nothing_is_overtaken_inside_a_loop(partitioning: PartitioningKind) -> None:
    assert not may_overtake(partitioning, loop="retry")
