"""A job without a listener tells what happens where a person sees it, and nowhere else."""

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest

from laminar_core.driver.events import (
    CommandAnswered,
    GenerationFailed,
    GenerationStarted,
    ProgressMade,
    RestoreProgressed,
)
from laminar_core.pipeline.display import (
    LINES_SHOWN,
    EventLog,
    NotebookPanel,
    TerminalDisplay,
    display_of,
    notebook,
)
from laminar_core.pipeline.progress_bar import ProgressBar

STARTED = GenerationStarted(
    time_ms=1, generation=3, parallelism=2, restored_checkpoint_id=7, rows_total=None
)
FAILED = GenerationFailed(
    time_ms=1, generation=3, code="worker-lost", reason="worker 1: <killed>", restart_in_ms=None
)
PROGRESS = ProgressMade(
    time_ms=1,
    rows_in=1_000,
    rows_out=1,
    rows_late=0,
    rows_total=4_000,
    rows_per_s=500,
    watermark_us=None,
)


class Cell:
    """The output of a cell in a notebook."""

    def __init__(self) -> None:
        self.html: list[str] = []

    def show(self, html: str):
        self.html.append(html)
        return self.html.append


def test_a_log_has_a_record_for_each_line_and_warns_of_what_may_need_a_person(caplog):
    log = EventLog("totals")
    with caplog.at_level(logging.INFO, logger="laminar_core"):
        log.start()
        for event in (STARTED, PROGRESS, FAILED):
            log.on_event(event)
        log.close()
    told = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    assert told == [
        (
            "laminar_core.job",
            "INFO",
            "job totals: generation 3 starts from checkpoint 7, 2 workers",
        ),
        ("laminar_core.job", "WARNING", "job totals: generation 3 failed: worker 1: <killed>"),
    ]


def test_a_panel_shows_the_last_lines_and_the_progress_until_the_end():
    panel = NotebookPanel((cell := Cell()).show)
    assert cell.html == []  # A job that cannot be started leaves no panel.
    panel.start()
    assert cell.html == ["<pre>starting</pre>"]
    panel.on_event(PROGRESS)
    assert cell.html[-1] == "<pre>starting\n1,000 of 4,000 rows, 500 rows/s</pre>"
    restored = RestoreProgressed(
        time_ms=1,
        generation=3,
        files=1,
        files_total=4,
        size_bytes=1,
        bytes_total=5_000_000,
        percent=25,
    )
    panel.on_event(restored)
    assert "restoring 25 % of 5.0 MB" in cell.html[-1]
    for _ in range(LINES_SHOWN + 3):
        panel.on_event(FAILED)
    panel.close()
    line = "generation 3 failed: worker 1: &lt;killed&gt;"
    assert cell.html[-1] == f"<pre>{chr(10).join([line] * LINES_SHOWN)}</pre>"


def test_a_terminal_gets_lines_on_standard_error(capsys):
    display = TerminalDisplay(ProgressBar(show_bar=False))
    display.start()
    display.on_event(STARTED)
    display.close()
    said = capsys.readouterr()
    assert (said.err, said.out) == ("generation 3 starts from checkpoint 7, 2 workers\n", "")


def test_without_a_terminal_or_a_notebook_a_job_logs(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False))
    assert isinstance(display_of("totals", progress=None), EventLog)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    assert isinstance(display_of("totals", progress=False), EventLog)


@pytest.mark.parametrize(("progress", "on_terminal"), [(None, True), (True, False)])
def test_a_terminal_or_a_wish_for_progress_makes_a_bar(monkeypatch, progress, on_terminal):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: on_terminal)
    assert isinstance(display_of("totals", progress=progress), TerminalDisplay)


def test_in_the_kernel_of_a_notebook_the_panel_is_replaced_in_place(monkeypatch):
    cell = Cell()
    ipython = ModuleType("IPython")
    shell = SimpleNamespace(kernel=object())
    ipython.get_ipython = lambda: shell

    def shown(html: str, *, display_id: bool):
        assert display_id
        cell.html.append(html)
        return SimpleNamespace(update=cell.html.append)

    ipython.display = SimpleNamespace(display=shown, HTML=lambda html: html)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    display = display_of("totals", progress=None)
    assert isinstance(display, NotebookPanel)
    display.start()
    display.on_event(FAILED)
    assert cell.html[0] == "<pre>starting</pre>"
    assert "failed" in cell.html[-1]
    assert isinstance(display_of("totals", progress=False), EventLog)
    del shell.kernel  # IPython on a terminal.
    assert notebook() is None


def test_an_answered_command_is_information(caplog):
    answered = CommandAnswered(
        time_ms=1,
        number=1,
        command="stop",
        actor="ann",
        outcome="completed",
        reason="",
        checkpoint_id=8,
        savepoint=None,
    )
    with caplog.at_level(logging.WARNING, logger="laminar_core"):
        EventLog("totals").on_event(answered)
    assert caplog.records == []
