"""A demonstration that is kept open ends when somebody wants it to."""

from rich.console import Console

from examples.operations.__main__ import stay_open


def test_dagster_stays_open_until_ctrl_c_and_says_where() -> None:
    console, waits = Console(record=True, width=100, quiet=False), 0

    def wait() -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            raise KeyboardInterrupt

    stay_open(console, "http://localhost:4000", wait)
    said = console.export_text()
    assert waits == 3
    assert "Dagster stays open on http://localhost:4000. Ctrl-C ends it." in said
    assert "ending what was started" in said
