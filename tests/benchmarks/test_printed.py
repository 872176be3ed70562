"""A benchmark that is run as a module prints what ``laminar bench --json`` prints."""

from benchmarks import printed
from benchmarks.printed import print_record, read_record
from benchmarks.result import Result
from tests.benchmarks.test_record import MACHINE


def test_a_record_is_printed_in_one_line_and_read_back(monkeypatch, capsys) -> None:
    monkeypatch.setattr(printed, "this_machine", lambda: MACHINE)
    monkeypatch.setattr("sys.argv", ["state.py", "--keys=5"])

    def state() -> list[Result]:
        """Measure."""
        return [Result("pause", 4.0, "ms", "lower")]

    print_record("state-growth", state)
    (line,) = capsys.readouterr().out.splitlines()
    found = read_record(f"other output\n{line}\n")
    assert found.command == "python -m benchmarks.state_growth --keys=5"
    assert [(f.name, f.values) for f in found.figures] == [("pause", (4.0,))]
    assert found.machine == MACHINE
