"""A checkpoint is right only if it has what a snapshot of 1985 would have of the same cut."""

import re

import pytest

from laminar_core.protocol.types import CheckpointId, Watermark
from verification.explorer.coordination import Checkpoint
from verification.explorer.parts import InFlight, Part
from verification.explorer.records import Record
from verification.explorer.reference import compare
from verification.explorer.worlds import FAN_IN

ONE = CheckpointId(1)
A0, A1, B0 = Record("a", 0), Record("a", 1), Record("b", 0)


def verdict(
    offset: int, counted: int, queued: tuple[InFlight, ...] = (), waiting: tuple[InFlight, ...] = ()
) -> str | None:
    """Source ``a`` is at ``offset``, the sink has ``counted`` of it; the rest is in flight."""
    parts = (
        Part(ONE, "a", offset=offset, outputs=(waiting,)),
        Part(ONE, "b", offset=1, outputs=((),)),
        Part(ONE, "j", counts=(("a", counted), ("b", 0)), inputs=(queued, (B0,))),
    )
    return compare(FAN_IN, Checkpoint(ONE, parts))


@pytest.mark.parametrize(
    ("offset", "counted", "queued", "waiting"),
    [
        (0, 0, (), ()),
        (2, 2, (), ()),
        (2, 0, (A0, A1), ()),
        (2, 0, (A0,), (A1,)),
        (2, 1, (), (A1,)),
        (1, 0, (A0, Watermark(3)), ()),
    ],
)
def test_consistent_cuts(offset: int, counted: int, queued, waiting) -> None:
    assert verdict(offset, counted, queued, waiting) is None


@pytest.mark.parametrize(
    ("offset", "counted", "queued", "waiting", "problem"),
    [
        (2, 1, (), (), r"a to j is \[\], and the cut needs \[a1\]"),
        (2, 1, (A1,), (A1,), r"is \[a1 a1\], and the cut needs \[a1\]"),
        (2, 1, (A0, A1), (), r"is \[a0 a1\], and the cut needs \[a1\]"),
        (2, 0, (A1, A0), (), r"is \[a1 a0\], and the cut needs \[a0 a1\]"),
        (2, 0, (A1,), (A0,), r"is \[a1 a0\], and the cut needs \[a0 a1\]"),
        (1, 2, (), (), "j has processed 2 of a, and only 1 were sent"),
        (0, 1, (), (), "j has processed 1 of a, of which none was sent"),
        (1, 1, (B0,), (), r"is \[b0\], and the cut needs \[\]"),
    ],
)
def test_loss_repetition_order_and_effects_without_cause(
    offset: int, counted: int, queued, waiting, problem: str
) -> None:
    found = verdict(offset, counted, queued, waiting)
    assert found is not None
    assert re.search(problem, found)


def test_a_part_that_is_missing() -> None:
    assert compare(FAN_IN, Checkpoint(ONE, (Part(ONE, "a"),))) == "checkpoint 1 has no part of b, j"
