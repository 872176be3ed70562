"""Names are those that monitoring systems expect, and each of them is unique."""

import re

import pytest

from laminar_core.metrics.catalogue import DURATION_BOUNDS_S, JOB_LABEL, METRICS, Metric


def test_names_are_unique_in_both_systems() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len({metric.family for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_follows_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"laminar(\.[a-z_]+)+", metric.name)
    assert re.fullmatch(r"[a-z_]+", metric.prometheus)
    assert metric.prometheus.endswith("_total") == (metric.kind == "counter")
    assert metric.kind != "histogram" or metric.unit == "s"
    assert metric.meaning[0].isupper() or metric.meaning[0].isdigit()
    assert not metric.meaning.endswith(".")


def test_the_unit_is_in_the_name_that_prometheus_sees() -> None:
    names = {metric.name: metric.prometheus for metric in METRICS}
    assert names["laminar.checkpoint.duration"] == "laminar_checkpoint_duration_seconds"
    assert names["laminar.checkpoint.written"] == "laminar_checkpoint_written_bytes_total"
    assert names["laminar.operator.busy"] == "laminar_operator_busy_ratio"


def test_no_label_grows_with_the_number_of_checkpoints_or_rows() -> None:
    bounded = {"code", "kind", "mode", "operator", "outcome", "phase", "sender", "sink", "source"}
    bounded |= {"upstream", "vertex"}
    assert {label for metric in METRICS for label in metric.labels} == bounded
    assert JOB_LABEL not in bounded


def test_buckets_rise() -> None:
    assert sorted(set(DURATION_BOUNDS_S)) == list(DURATION_BOUNDS_S)
