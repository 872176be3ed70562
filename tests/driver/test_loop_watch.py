"""Waves follow each other at a distance, never overlap, and stop when every loop is over."""

import math

from laminar_core.driver.loop_watch import WAVE_INTERVAL_MS, LoopWatch
from laminar_core.protocol.termination import LoopCounts

QUIET = {"retry": LoopCounts(outside_ended=True, produced=3, consumed=3)}


def test_a_job_without_loops_has_no_waves() -> None:
    watch = LoopWatch(range(2), ())
    assert watch.due_ms == math.inf
    assert watch.begin(now_ms=1e9) is None


def test_the_next_wave_begins_some_time_after_the_last_answer() -> None:
    watch = LoopWatch(range(2), {"retry"})
    assert watch.begin(now_ms=10) == 1
    assert (watch.due_ms, watch.begin(now_ms=9_999)) == (math.inf, None)
    assert watch.answered(1, 0, QUIET, now_ms=20) == frozenset()
    assert watch.begin(now_ms=9_999) is None
    assert watch.answered(1, 1, QUIET, now_ms=30) == frozenset()
    assert watch.due_ms == 30 + WAVE_INTERVAL_MS
    assert watch.begin(now_ms=29 + WAVE_INTERVAL_MS) is None
    assert watch.begin(now_ms=30 + WAVE_INTERVAL_MS) == 2


def test_when_every_loop_is_over_nobody_is_asked_any_more() -> None:
    watch = LoopWatch([0], {"retry"})
    for wave in (1, 2):
        assert watch.begin(now_ms=wave * 1_000) == wave
        over = watch.answered(wave, 0, QUIET, now_ms=wave * 1_000)
    assert over == {"retry"}
    assert watch.due_ms == math.inf
