"""How the pause, the upload and the restore grow with the number of keys in the state.

Each number of keys has a process of its own (``benchmarks/state.py``), and all numbers take turns.
The results of each run are checked, key by key.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Series
from itertools import pairwise

from benchmarks.result import Result, median
from benchmarks.state import PAUSE_TARGET_MS, RESTORE_TARGET_S_PER_GB, Size, in_another_process

KEYS = (10_000, 100_000, 1_000_000, 4_000_000)
CUTS = 5
ROUNDS = 2
_UNITS = {
    "pause_median": "ms",
    "pause_max": "ms",
    "first_checkpoint": "s",
    "restore_time": "s",
    "restore": "s/GB",
    "size": "GB",
    "peak_memory": "GB",
}
_TARGETS = {"pause_max": PAUSE_TARGET_MS, "restore": RESTORE_TARGET_S_PER_GB}
_LINEAR = ("first_checkpoint", "restore_time")
_LINEAR_TARGET = 1.5
"""Twice as many keys take at most three times as long."""


def state_growth() -> list[Result]:
    """Pause, upload and restore of 10,000 to 4 million keys in memory."""
    measured: dict[int, list[Mapping[str, float]]] = {keys: [] for keys in KEYS}
    for _ in range(ROUNDS):
        for keys in KEYS:
            found = in_another_process(Size(keys=keys, cuts=CUTS))
            measured[keys].append({result.name: result.value for result in found})
    return list(results_of(measured))


def results_of(measured: Mapping[int, Series[Mapping[str, float]]]) -> Iterator[Result]:
    """Yield the figures of all numbers of keys, and the factors from one to the next."""
    for keys, rounds in measured.items():
        for what, unit in _UNITS.items():
            values = [each[f"state_memory_{what}"] for each in rounds]
            name, target = f"state_growth_{keys}_{what}", _TARGETS.get(what)
            yield Result.of_rounds(name, values, unit, "lower", target)
    for fewer, more in pairwise(measured):
        for what in _LINEAR:
            times = [
                median([each[f"state_memory_{what}"] for each in measured[keys]])
                for keys in (fewer, more)
            ]
            factor = times[1] / times[0] / (more / fewer)
            name = f"state_growth_{more}_{what}_growth"
            yield Result(name, factor, "to linear", "lower", _LINEAR_TARGET)
