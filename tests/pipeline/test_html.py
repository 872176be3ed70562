"""A job in a notebook: what matters of its status, and nothing that a browser would run."""

from dataclasses import replace

from laminar_core.driver.options import JobResult
from laminar_core.pipeline.html import lines_html, problem_html, status_html
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.store.job_status import CheckpointStatus, DriverStatus, JobStatus

DRIVER = DriverStatus(
    generation=Generation(3),
    state="running",
    owner=None,
    actor="ann",
    reason="",
    code_version=None,
    claimed_at_ms=1,
    has_started=True,
    restored_checkpoint_id=None,
    outcome=None,
    outcome_reason=None,
    heartbeat_age_ms=10,
    progress={
        "rows_in": 12_000,
        "rows_out": 7,
        "rows_late": 0,
        "rows_per_s": 1_500.4,
        "sources": {"payments": {"splits": 2, "lag_rows": 4_000, "lag_seconds": 3.2}},
    },
)
CHECKPOINT = CheckpointStatus(
    checkpoint_id=CheckpointId(8),
    generation=Generation(3),
    kind=CheckpointKind.PERIODIC,
    mode="aligned",
    completed_at_ms=1,
    age_ms=2_400,
    duration_ms=41.6,
    size_bytes=12_345,
    written_bytes=45,
    inflight_bytes=0,
    inflight_rows=0,
)
STATUS = JobStatus("totals", 5, DRIVER, CHECKPOINT)


def rows_of(html: str) -> dict[str, str]:
    assert html.startswith("<table><tr>")
    cells = html.removeprefix("<table><tr><th>").removesuffix("</td></tr></table>")
    return dict(row.split("</th><td>") for row in cells.split("</td></tr><tr><th>"))


def test_a_running_job_shows_state_generation_checkpoint_rows_rate_and_lag():
    assert rows_of(status_html(STATUS)) == {
        "job": "totals",
        "state": "running",
        "generation": "3",
        "rows in": "12,000",
        "rows out": "7",
        "rate": "1,500 rows per s",
        "lag of payments": "4,000 rows, 3 s",
        "last checkpoint": "8, 2 s ago: 42 ms, 12,345 bytes",
    }


def test_an_ended_job_shows_how_it_ended_and_its_final_numbers():
    ended = replace(DRIVER, state="ended", outcome="finished")
    result = JobResult("finished", 20_000, 9, 1, 2, 1, {})
    found = rows_of(status_html(replace(STATUS, driver=ended), result))
    assert (found["state"], found["rows in"], found["rows late"]) == ("finished", "20,000", "1")
    assert "rate" not in found
    failed = replace(ended, outcome="failed", outcome_reason="worker 1: killed")
    found = rows_of(status_html(replace(STATUS, driver=failed)))
    assert (found["state"], found["rows in"]) == ("failed: worker 1: killed", "12,000")
    assert "rate" not in found


def test_a_job_that_has_not_started_says_so():
    assert rows_of(status_html(JobStatus("totals", 5)))["state"] == "has not started"


def test_nothing_in_a_status_is_taken_for_html():
    evil = "<script>alert(1)</script>"
    html = status_html(JobStatus("a&b", 5, problems=(evil,)))
    assert "a&amp;b" in html
    for text in (html, problem_html(evil), lines_html([evil])):
        assert "<script>" not in text
        assert "&lt;script&gt;" in text
