"""The benchmark's two ends carry every message, with each way."""

import multiprocessing
import threading

import pytest

from benchmarks import transports
from benchmarks.transports import WAYS, Way


@pytest.mark.parametrize("way", WAYS)
def test_each_way_carries_everything_and_its_cost_is_counted(way: Way) -> None:
    pipes = [multiprocessing.Pipe() for _ in range(2)]
    ends = [
        threading.Thread(target=transports._serve, args=(index, theirs), daemon=True)
        for index, (_, theirs) in enumerate(pipes)
    ]
    for end in ends:
        end.start()
    ours = [pipe for pipe, _ in pipes]
    case = transports._Case(way, 512 * 1024, 32)
    by, to = transports._measure(case, ours)
    assert min(*by, *to) > 0
    for pipe in ours:
        pipe.send(None)
    for end in ends:
        end.join()


def test_figures_are_of_both_ends_and_of_a_gigabyte() -> None:
    by, to = transports._Cost(1.0, 0.5, 0.25), transports._Cost(2.0, 1.5, 0.75)
    names = [
        (result.name, result.value, result.unit)
        for result in transports._results("t", 2.0, [(by, to)])
    ]
    assert names == [
        ("t", 1.0, "GB/s"),
        ("t_cpu", 1.0, "s/GB"),
        ("t_threads", 0.5, "s/GB"),
    ]
