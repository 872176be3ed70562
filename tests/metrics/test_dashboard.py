"""Dashboard and alerts use metrics and labels that exist, in a layout that fits."""

import json
import re
from pathlib import Path

import pytest
import yaml

from laminar_core.metrics.catalogue import JOB_LABEL, METRICS
from laminar_core.protocol.coordinator_events import Outcome

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "laminar.json").read_text())
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
NOT_SHOWN = {
    "laminar.job.generation",
    "laminar.job.workers",
    "laminar.store.lost",
    "laminar.commit.fenced",
    "laminar.unaligned.cuts",
    "laminar.unaligned.switches",
}
"""Metrics that are for alerts and for questions that come up later."""

LABELS = {
    name: {JOB_LABEL, *metric.labels}
    for metric in METRICS
    for name in (
        [metric.prometheus]
        if metric.kind != "histogram"
        else [f"{metric.prometheus}_{part}" for part in ("bucket", "sum", "count")]
    )
}


def names(text: str) -> set[str]:
    """Names of series in an expression or a text."""
    return set(re.findall(r"\blaminar_[a-z_]+\b", text)) - {JOB_LABEL, "laminar_core"}


def unknown(text: str) -> set[str]:
    """Names that are those of no series."""
    return names(text) - LABELS.keys() - {metric.prometheus for metric in METRICS}


def labels(text: str) -> set[str]:
    """Labels that an expression selects or groups by."""
    selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", text)
    grouped = [name for names in re.findall(r"\bby \(([^)]*)\)", text) for name in names.split(",")]
    return {name.strip() for name in [*selected, *grouped]} - {"le"}


EXPRESSIONS = [
    *((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]),
    *((rule["alert"], rule["expr"]) for rule in RULES),
]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_every_expression_uses_series_and_labels_that_exist(title: str, expression: str) -> None:
    assert names(expression), title
    assert unknown(expression) == set()
    allowed = set[str]().union(*(LABELS[name] for name in names(expression)))
    assert labels(expression) <= allowed
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_legend_shows_labels_that_are_there(panel) -> None:
    for target in panel["targets"]:
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= set[str]().union(*(LABELS[name] for name in names(target["expr"])))
        assert f'{JOB_LABEL}=~"$laminar_job"' in target["expr"]


def test_every_metric_is_shown_or_left_out_on_purpose() -> None:
    used = {
        name for panel in PANELS for target in panel["targets"] for name in names(target["expr"])
    }
    shown = {
        metric.name
        for metric in METRICS
        if any(name.startswith(metric.prometheus) for name in used)
    }
    sources = {m.name for m in METRICS if m.name.startswith(("laminar.source", "laminar.sink"))}
    left_out = {m.name for m in METRICS} - shown - sources
    times = {"laminar.operator.busy.time", "laminar.operator.backpressured.time"}
    times |= {"laminar.operator.rows.out", "laminar.commit.last.duration"}
    times |= {"laminar.checkpoint.inflight.written", "laminar.operator.rows.expired"}
    assert left_out == NOT_SHOWN | times


def test_outcomes_that_it_selects_exist() -> None:
    outcomes = {each.value for each in Outcome}
    for _, expression in EXPRESSIONS:
        for value in re.findall(r"outcome=~?\"([^\"]*)\"", expression):
            assert set(value.split("|")) <= outcomes


def test_panels_do_not_overlap_and_fill_rows() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_source_of_its_data_is_chosen_where_it_is_imported() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", JOB_LABEL}
    assert unknown(variables[JOB_LABEL]["definition"]) == set()
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS)


def test_an_alert_says_what_is_wrong() -> None:
    for rule in RULES:
        assert rule["annotations"]["summary"]
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert shown <= set[str]().union(*(LABELS[name] for name in names(rule["expr"])))
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
