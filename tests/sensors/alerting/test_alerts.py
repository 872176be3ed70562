"""Alerts: alerted once per cause, carried on by the user's own function, and never in the way."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar, get_args

import pytest

from laminar_core.orchestration.streams import ROOT
from laminar_core.sensors.alerting import alerts
from laminar_core.sensors.alerting.alerts import (
    Alert,
    Incident,
    alert_of,
    hook_problem,
    new_incidents,
    raise_alerts,
)
from laminar_core.sensors.background import BackgroundReads
from laminar_core.sensors.policy import AlertPolicy

LOG = logging.getLogger("alerts")
HERE = __name__
HEARD: list[Alert] = []
STUCK = Incident("job-stuck:7", "job-stuck", "error", "it is stuck", "Look.\n At it.", {"n": 7})
LATE = Incident("alignment:7:0", "alignment", "warning", "slow", "Find the operator.", run_id="r1")


def hear(alert: Alert) -> None:
    HEARD.append(alert)


def fail(alert: Alert) -> None:
    raise OSError(f"no route for {alert.title}")


def leave(alert: Alert) -> None:
    raise SystemExit(alert.title)


def hang(alert: Alert) -> None:
    del alert
    threading.Event().wait(5)


@pytest.fixture(autouse=True)
def _nothing_heard() -> Iterator[None]:
    HEARD.clear()
    yield
    HEARD.clear()


def tell(hook: str | None, *incidents: Incident) -> None:
    raise_alerts("payments", incidents, AlertPolicy(hook=hook), LOG, 1_700_000_000_000)


def test_a_hook_gets_each_incident_as_an_alert() -> None:
    tell(f"{HERE}:hear", STUCK, LATE)
    stuck, late = HEARD
    assert stuck == Alert(
        stream="payments",
        severity="error",
        title="payments: it is stuck",
        text="Look. At it.",
        runbook="docs/operations.md#job-stuck",
        facts={"n": 7},
        at_ms=1_700_000_000_000,
    )
    assert (late.severity, late.run_id) == ("warning", "r1")
    assert json.loads(json.dumps(stuck.as_json()))["facts"] == {"n": 7}


def test_without_a_hook_the_log_says_it(caplog: pytest.LogCaptureFixture) -> None:
    tell(None, STUCK, LATE)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", "payments: it is stuck: Look. At it. See docs/operations.md#job-stuck."),
        ("WARNING", "payments: slow: Find the operator. See docs/operations.md#alignment."),
    ]


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (f"{HERE}:fail", "OSError('no route for payments: it is stuck')"),
        (f"{HERE}:leave", "SystemExit"),
        (f"{HERE}:nothing", "AttributeError"),
        ("no.such.module:hook", "ModuleNotFoundError"),
    ],
)
def test_a_hook_that_fails_is_logged_and_nothing_more(
    hook: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    tell(hook, STUCK, LATE)
    failures = [r.getMessage() for r in caplog.records if "the alert hook" in r.getMessage()]
    assert len(failures) == 2
    assert problem in failures[0]


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (None, None),
        ("{here}:hear", None),
        ("{here}:nothing", "cannot be imported: AttributeError: module"),
        ("my_team.alerts:notify", "cannot be imported: ModuleNotFoundError: No module named"),
        ("leaves:notify", "cannot be imported: SystemExit: not here"),
        ("{here}:HERE", "is no function"),
    ],
)
def test_a_hook_that_cannot_be_called_is_known_before_the_first_alert(
    hook, problem, tmp_path, monkeypatch
) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit('not\\nhere')\n")
    monkeypatch.syspath_prepend(tmp_path)
    hook = hook and hook.format(here=HERE)
    said = hook_problem(AlertPolicy(hook=hook), BackgroundReads())
    assert said is None if problem is None else (said or "").startswith(f"hook {hook} {problem}")
    assert "\n" not in (said or "")


def test_a_hook_that_takes_long_to_import_is_waited_for_by_later_ticks(monkeypatch) -> None:
    imported, imports = threading.Event(), BackgroundReads(wait_ms=20)

    def load(_: AlertPolicy) -> object:
        imported.wait(10)
        return hear

    monkeypatch.setattr(AlertPolicy, "load_hook", load)
    policy = AlertPolicy(hook="slow:notify")
    assert hook_problem(policy, imports) == "hook slow:notify is still being imported"
    imported.set()
    assert hook_problem(policy, BackgroundReads()) is None


def test_a_hook_that_hangs_does_not_hold_up_the_tick(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "HOOK_MS_MAX", 20)
    tell(f"{HERE}:hang", STUCK)
    assert "takes more than 20 ms" in caplog.text


def test_a_cause_is_reported_once_as_long_as_it_lasts() -> None:
    news, alerted = new_incidents([STUCK], ())
    assert news == [STUCK]
    news, alerted = new_incidents([STUCK, LATE], alerted)
    assert news == [LATE]
    _, alerted = new_incidents([], alerted)
    news, _ = new_incidents([STUCK], alerted)
    assert news == [STUCK]


def test_every_alert_has_its_place_in_the_runbook() -> None:
    lines = (ROOT / alerts.RUNBOOK).read_text().splitlines()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in lines if line[:1] == "#"}
    assert set(get_args(alerts.Anchor)) - headings == set()


class Receiver(BaseHTTPRequestHandler):
    """Keeps what is posted to it."""

    posted: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.posted.append(json.loads(self.rfile.read(length)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        del format, arguments


def test_the_hook_of_the_documents_posts_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the example in docs/orchestration.md works as it is printed there."""
    text = (ROOT / "docs" / "orchestration.md").read_text()
    (example,) = [b for b in text.split("```python\n")[1:] if "def notify" in b]
    code: dict[str, Any] = {}
    exec(example.split("```")[0], code)
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ALERT_WEBHOOK", f"http://127.0.0.1:{server.server_port}/alerts")
    try:
        code["notify"](alert_of("payments", STUCK, 1_700_000_000_000))
    finally:
        server.shutdown()
        server.server_close()
    assert [each["title"] for each in Receiver.posted] == ["payments: it is stuck"]
