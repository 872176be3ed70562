"""Prints what ``python -m benchmarks.NAME`` measured, as ``laminar bench NAME --json`` does."""

import json
import sys
from collections.abc import Callable

from benchmarks.machine import this_machine
from benchmarks.measuring import Benchmark, measure
from benchmarks.record import Record
from benchmarks.result import Result


def print_record(name: str, function: Callable[[], list[Result]]) -> None:
    """Measure once, and print a list of one record, in one line.

    Args:
        name: the benchmark.
        function: measures, with the arguments of this process.
    """
    record = measure(Benchmark(name, function), this_machine(), lambda _: None, 1)
    words = " ".join(["python", "-m", f"benchmarks.{name.replace('-', '_')}", *sys.argv[1:]])
    found = record.model_copy(update={"command": words}).model_dump(mode="json")
    print(json.dumps([found]))  # noqa: T201 - its output


def read_record(printed: str) -> Record:
    """Return the record that a process printed in its last line."""
    (found,) = json.loads(printed.splitlines()[-1])
    return Record.model_validate(found)
