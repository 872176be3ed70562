"""The clocks keep what the rest relies on."""

import ast
from pathlib import Path

import pytest

import laminar_core
from laminar_core.host.clock import ManualClock, SystemClock


def test_the_systems_monotonic_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(100)]
    assert readings == sorted(readings)


def test_the_system_waits_at_least_as_long_as_requested() -> None:
    clock = SystemClock()
    before_ms = clock.monotonic_ms()
    clock.wait_ms(2)
    assert clock.monotonic_ms() - before_ms >= 2


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_a_wait_that_is_over_already_is_no_error(clock) -> None:
    clock.wait_ms(-5)
    assert clock.now_ms() > 1_600_000_000_000


def test_a_manual_clock_moves_only_by_waiting() -> None:
    clock = ManualClock(1000)
    clock.wait_ms(0.25)
    clock.wait_ms(-3)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 1000.25)


def test_two_modules_of_the_library_import_time() -> None:
    package = Path(laminar_core.__file__).parent
    importing = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import) and any(alias.name == "time" for alias in node.names)
    }
    assert importing == {"host/clock.py", "objectstore/retries.py"}, "storage is below the runtime"
