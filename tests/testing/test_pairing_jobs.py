"""Joins with marks and with windows in the simulator; a fault in what they remember is noticed.

What all joins have to stand is in ``test_join_jobs``.
"""

from collections import Counter

import pytest

from laminar_core.operators.joins.forward import ForwardJoiner
from laminar_core.testing.pairing_jobs import PAIRING_JOBS
from laminar_core.testing.simulation import Simulation

SEEDS = range(2)


def test_every_kind_of_result_is_in_the_jobs() -> None:
    rows = PAIRING_JOBS["window-join"](1).expected["out"]
    kinds = Counter((row["id"] is None, row["refund"] is None) for row in rows)
    assert all(kinds[kind] > 5 for kind in ((False, False), (True, False), (False, True)))
    for name in ("forward-join", "expiring-join"):
        rows = PAIRING_JOBS[name](1).expected["out"]
        assert 5 < sum(row["refund"] is None for row in rows) < len(rows) - 20
    semi, anti = (PAIRING_JOBS[name](1).expected["out"] for name in ("semi-join", "anti-join"))
    assert {row["id"] for row in semi}.isdisjoint(row["id"] for row in anti)
    assert (
        max(Counter(row["id"] for row in PAIRING_JOBS["sliding-join"](1).expected["out"]).values())
        == 2
    )


def test_a_watermark_that_is_not_held_back_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ForwardJoiner, "output_watermark", lambda _self, watermark_us: watermark_us)
    late = 0
    for seed in SEEDS:
        job = PAIRING_JOBS["forward-join"](2)
        late += Simulation(job.plan, parallelism=2, seed=seed).run().rows_late
    assert late
