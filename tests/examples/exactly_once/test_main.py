"""The demo hears everything that the driver tells."""

import threading
from pathlib import Path

from examples.exactly_once import __main__ as demo


def test_events_are_followed_as_they_are_written_and_to_the_last(tmp_path: Path) -> None:
    path, over, heard = tmp_path / "events", threading.Event(), []
    first = threading.Event()

    def listen() -> None:
        for event in demo.follow(path, over):
            heard.append(event["n"])
            first.set()

    listener = threading.Thread(target=listen)
    listener.start()
    with path.open("a") as file:
        file.write('{"n": 1}\n{"n"')
        file.flush()
        assert first.wait(30)
        file.write(': 2}\n{"n": 3}\n')
    over.set()
    listener.join()
    assert heard == [1, 2, 3]


def test_the_screen_says_what_happens_while_no_row_moves() -> None:
    """Every event after which rows stand still, or flow again, changes what is shown."""
    told = ["generation-started", "restore-progress", "workers-running", "data-flowing"]
    said = [demo.doing_after(event) for event in told]
    assert None not in said
    assert len(set(said)) == len(told)
    assert demo.doing_after("progress") is None


def test_a_job_that_writes_nothing_is_followed_too(tmp_path: Path) -> None:
    over = threading.Event()
    over.set()
    assert list(demo.follow(tmp_path / "never", over)) == []
