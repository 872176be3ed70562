"""The conformance table names what exists, and what document 000 names exists by that name."""

import re
from pathlib import Path

import pytest

from benchmarks import runner

ROOT = Path(__file__).parent.parent
TABLE = (ROOT / "docs" / "conformance.md").read_text()
PLACE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.\w+)(?:::(\w+))?`")
PLACES = sorted({(match[1], match[2] or "") for match in PLACE.finditer(TABLE)})
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ") and not line.startswith(("| the document", "| error |", "| target |"))
]

UNIT_TESTS = [
    "test_unaligned_config_defaults",
    "test_immediate_unaligned_with_flag",
    "test_force_unaligned_mode",
    "test_threshold_switch_from_aligned",
    "test_inflight_capture_single_channel",
    "test_inflight_capture_multiple_channels",
    "test_late_barrier_consumed_after_snapshot",
    "test_all_late_barriers_received_resets_state",
    "test_events_pass_through_after_unaligned_snapshot",
    "test_inflight_buffer_size_limit",
    "test_disabled_unaligned_stays_aligned",
    "test_metrics_count_unaligned_checkpoints",
    "test_metrics_count_threshold_switches",
]
INTEGRATION_TESTS = [
    "test_unaligned_checkpoint_with_backpressure",
    "test_unaligned_checkpoint_save_and_load",
    "test_unaligned_recovery_replays_inflight",
    "test_unaligned_then_aligned_sequence",
    "test_unaligned_with_join_operator",
]
BENCHMARKS = [
    "bench_unaligned_trigger",
    "bench_inflight_capture_10k",
    "bench_inflight_serialize_1mb",
    "bench_mode_switch",
    "bench_unaligned_recovery_10k_inflight",
]
AGGREGATE_STATE_TESTS = [
    "test_checkpoint_roundtrip_single_group_sum",
    "test_checkpoint_roundtrip_multi_group_avg",
    "test_checkpoint_roundtrip_eowc_tumbling_window",
    "test_checkpoint_roundtrip_eowc_multiple_windows",
    "test_restore_missing_key_is_noop",
    "test_restore_fingerprint_mismatch_skips_query",
    "test_restore_corrupt_bytes_returns_error",
    "test_checkpoint_empty_state_returns_none",
    "test_scalar_value_roundtrip_all_types",
]


def defined(name: str, path: Path) -> bool:
    return re.search(rf"^ *(def|class) {name}\b", path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize(("path", "name"), PLACES, ids=lambda part: part or "file")
def test_every_place_in_the_table_is_there(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    assert not name or defined(name, ROOT / path)


def test_every_row_has_a_verdict_and_says_where_or_why() -> None:
    rows = [row for row in ROWS if row[1] != ""]
    assert [row for row in rows if len(row) != 3] == []
    assert {row[1] for row in rows} <= {"met", "different", "not yet"}
    assert [row[0] for row in rows if row[1] == "met" and not PLACE.search(row[2])] == []
    assert [row[0] for row in rows if not row[2]] == []
    assert len(rows) > 160


def test_every_mistake_and_every_rule_that_is_cited_is_there_to_be_read() -> None:
    mistakes, rules = ((ROOT / "docs" / name).read_text() for name in ("errata.md", "protocol.md"))
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "verification").rglob("*.py")]
    files += (ROOT / "laminar_core").rglob("*.py")
    text = "\n".join(path.read_text() for path in files)
    named = set(re.findall(r"ERRATA (\d\.\d+)", text))
    assert len(named) > 60
    assert [number for number in sorted(named) if f"| {number} |" not in mistakes] == []
    sections = set(re.findall(r"PROTOCOL\s+sections? (\d+)", text))
    assert [number for number in sorted(sections) if f"## {number}. " not in rules] == []


@pytest.mark.parametrize("name", UNIT_TESTS)
def test_each_unit_test_of_document_000_has_a_counterpart(name: str) -> None:
    assert defined(name, ROOT / "tests/protocol/test_unaligned.py")


@pytest.mark.parametrize("name", INTEGRATION_TESTS)
def test_each_integration_test_of_document_000_has_a_counterpart(name: str) -> None:
    assert defined(name, ROOT / "tests/simulated/test_unaligned_integration.py")


@pytest.mark.parametrize("name", AGGREGATE_STATE_TESTS)
def test_each_test_of_document_001_has_a_counterpart(name: str) -> None:
    assert defined(name, ROOT / "tests/operators/test_stream_executor.py")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_of_document_000_can_be_run_by_its_name(name: str) -> None:
    assert name in runner.descriptions()
