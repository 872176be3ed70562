"""A benchmark runs as often as it should, and its record says where and how."""

from benchmarks.machine import this_machine
from benchmarks.measuring import Benchmark, measure
from benchmarks.result import Result
from tests.benchmarks.test_record import MACHINE


def test_a_record_has_the_command_and_the_values_of_every_run() -> None:
    speeds = iter([3.0, 5.0])

    def fast() -> list[Result]:
        """How fast it is."""
        return [Result("speed", next(speeds), "rows/s", "higher")]

    told: list[str] = []
    record = measure(Benchmark("fast", fast), MACHINE, told.append, 2)
    assert told == ["fast (1 of 2): How fast it is.", "fast (2 of 2): How fast it is."]
    assert (record.command, record.runs) == ("laminar bench fast --repeat 2", 2)
    assert [figure.values for figure in record.figures] == [(3.0, 5.0)]
    assert record.machine == MACHINE
    assert record.began <= record.ended
    assert None not in (record.load_before, record.load_after)


def test_the_machine_has_cores_memory_and_versions() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory_bytes > 1 << 20
    assert machine.java.partition(".")[0].isdigit()
