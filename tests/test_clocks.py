"""No decision compares the wall clocks of two machines; a page says where they meet at all.

Times of records end in ``_at_ms``: the wall clock of whoever wrote them. Each place that takes the
difference of such times, or orders them, is listed here with the reason why it may.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("laminar_core", "resources", "sensors", "orchestration")
NO_PRODUCT = ("testing", "demo")

ONE_CLOCK = "both times are of one writer"
SHOWN = "it is shown, and decides nothing"
A_DAY = "a policy of hours or days, whose protection is not a clock: docs/deployment.md#clocks"
ALERTS = "a verdict for people: docs/deployment.md#clocks"

COMPARED = {
    "laminar_core/protocol/recovery.py:_judge": A_DAY,
    "laminar_core/retention/decision.py:active_pins": A_DAY,
    "laminar_core/retention/view.py:has_waited": A_DAY,
    "laminar_core/retention/view.py:is_too_old": A_DAY,
    "laminar_core/cli/audit.py:list_records": SHOWN,
    "laminar_core/cli/retention_view.py:_pin_row": SHOWN,
    "laminar_core/cli/retention_view.py:pin_as_remark": SHOWN,
    "laminar_core/cli/status.py:_lines": SHOWN,
    "laminar_core/cli/top_view.py:_head": SHOWN,
    "laminar_core/driver/commands/dispatcher.py:_patience_ms": ONE_CLOCK,
    "laminar_core/driver/operator_watch.py:OperatorWatch.look": ONE_CLOCK,
    "laminar_core/driver/operator_watch.py:_rates": ONE_CLOCK,
    "laminar_core/driver/recovery/report.py:CheckpointReport.of": SHOWN,
    "laminar_core/spark/doctor/links.py:_clock_ahead_ms": SHOWN,
    "laminar_core/store/job_status.py:_driver": SHOWN,
    "laminar_core/store/job_status.py:_newest_checkpoint": SHOWN,
    "laminar_core/store/pins.py:Pins._in_place_of": A_DAY,
    "laminar_core/store/pins.py:_repeatable": ONE_CLOCK,
    "laminar_core/store/usage.py:GenerationTraffic.duration_ms": ONE_CLOCK,
    "orchestration/housekeeping/cost_jobs.py:checkpoint_metadata": SHOWN,
    "orchestration/housekeeping/left_over_jobs.py:left_over_metadata": SHOWN,
    "orchestration/launching/restart.py:Restored.metadata": SHOWN,
    "resources/job_control.py:JobControl._left_behind": SHOWN,
    "sensors/alignment/facts.py:_facts": ONE_CLOCK,
    "sensors/alignment/facts.py:_under_way": ONE_CLOCK,
    "sensors/alignment/facts.py:_with_rate": ONE_CLOCK,
    "sensors/alignment/facts.py:read_alignment_facts": ONE_CLOCK,
    "sensors/facts/followed.py:follow": ONE_CLOCK,
    "sensors/facts/health_facts.py:_silence_ms": ALERTS,
    "sensors/facts/job_facts.py:_expiries": ONE_CLOCK,
    "sensors/facts/source_facts.py:headrooms": ALERTS,
    "sensors/judgements.py:OutputExpiry.left_ms": ALERTS,
    "sensors/judgements.py:judge_freshness": ALERTS,
    "sensors/judgements.py:judge_lost_files": ALERTS,
    "sensors/judgements.py:judge_restorable": ALERTS,
    "sensors/judgements.py:judge_transactions": ALERTS,
    "sensors/judgements.py:source_retention": ALERTS,
    "sensors/observer/checkpoint_metadata.py:_progress_about_then": ONE_CLOCK,
    "sensors/observer/checkpoint_metadata.py:event_time_metadata": SHOWN,
    "sensors/observer/job_observations.py:_lost_time": SHOWN,
    "sensors/observer/observer.py:Observer._acting": ALERTS,
    "sensors/observer/observer.py:Observer._is_left_to_run": ALERTS,
    "sensors/observer/visible_output.py:OutputWatch.leaves": ALERTS,
    "sensors/recovery/facts.py:Watched.then": ONE_CLOCK,
    "sensors/recovery/facts.py:_progress_age_ms": ONE_CLOCK,
    "sensors/recovery/facts.py:read_recovery_facts": ONE_CLOCK,
    "sensors/source_retention/decision.py:_remedy": ALERTS,
    "sensors/source_retention/decision.py:decide_source_retention": ALERTS,
    "sensors/source_retention/lag.py:lag_incidents": ONE_CLOCK,
    "sensors/standby/decision.py:Deaths.then": ONE_CLOCK,
}
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def is_wall_time(node: ast.AST) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name == "at_ms" or name.endswith("_at_ms")


def compares(node: ast.AST) -> bool:
    """Say whether the difference or the order of wall clock times is taken here."""
    subtracts = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    orders = isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops)
    return (subtracts or orders) and any(map(is_wall_time, ast.walk(node)))


def comparing(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the qualified name of every function that compares."""
    for child in ast.iter_child_nodes(node):
        inside = isinstance(child, ast.FunctionDef | ast.ClassDef)
        within = (*names, child.name) if inside else names
        if compares(child):
            yield ".".join(within)
        yield from comparing(child, within)


def found() -> set[str]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        f"{path.relative_to(ROOT)}:{name}"
        for path in paths
        if not set(NO_PRODUCT) & set(path.parts)
        for name in comparing(ast.parse(path.read_text()))
    }


def test_every_comparison_of_wall_clocks_has_a_reason() -> None:
    assert found() == set(COMPARED)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("def f(a): return a.now_ms > a.expires_at_ms", ["f"]),
        ("class C:\n  def f(a): return now_ms - max(0, a.done_at_ms)", ["C.f"]),
        ("def f(a): return a.done_at_ms == 3 and a.done_at_ms + 5", []),
    ],
)
def test_what_counts_as_a_comparison(code: str, named: list[str]) -> None:
    assert list(comparing(ast.parse(code))) == named


def test_the_page_names_what_skew_does() -> None:
    page = (ROOT / "docs/deployment.md").read_text().partition("## Clocks")[2]
    for what in ("restore-before", "max_age", "quarantine", "hold", "freshness", "commands"):
        assert what in page, what
