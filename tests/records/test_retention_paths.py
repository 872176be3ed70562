import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.paths import JobPaths
from laminar_core.records.retention_paths import RetentionPaths, StoredName, check_pin_name

JOB = JobPaths("payments")
PATHS = RetentionPaths(JOB)


def test_names() -> None:
    assert PATHS.plan(3) == "payments/retention/0000000003.plan.json"
    assert PATHS.decision(3) == "payments/retention/0000000003.decision.json"
    assert PATHS.result(3) == "payments/retention/0000000003.result.json"
    assert PATHS.pin(CheckpointId(12), "audit-2") == "payments/pins/0000000012-audit-2.json"
    path = "shared/window/0000000001-0-00000002.seg"
    assert PATHS.quarantined(path) == f"payments/retention/quarantine/{path}.json"
    assert PATHS.path_in_quarantine(PATHS.quarantined(path)) == path


def test_names_are_distinguished() -> None:
    assert PATHS.step_of("0000000003.plan.json") == (3, "plan")
    assert PATHS.step_of("0000000003.decision.json") == (3, "decision")
    assert PATHS.step_of("0000000003.result.json") == (3, "result")
    assert PATHS.pin_of("0000000012-audit-2.json") == (12, "audit-2")
    for name in ("quarantine/", "3.plan.json", "0000000003.json", "0000000003.plan.json.bak"):
        assert PATHS.step_of(name) is None
        assert PATHS.pin_of(name) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (JOB.state(CheckpointId(7), "window", 0), StoredName("part", CheckpointId(7))),
        (JOB.state(CheckpointId(7), "window", 0, 2), StoredName("part", CheckpointId(7))),
        (
            JOB.inflight(CheckpointId(7), 0),
            StoredName("part", CheckpointId(7)),
        ),
        ("payments/checkpoints/0000000007/operators/w/state_0.arrow", StoredName("part", 7)),
        (JOB.manifest(CheckpointId(7)), StoredName("record", CheckpointId(7))),
        (JOB.trigger(CheckpointId(7)), StoredName("record", CheckpointId(7))),
        (JOB.deletion(CheckpointId(7)), StoredName("record", CheckpointId(7))),
        (
            JOB.shared_segment("window", Generation(3), 1, 20),
            StoredName("shared", generation=Generation(3)),
        ),
        ("payments/checkpoints/0000000007/notes.txt", StoredName("unknown", CheckpointId(7))),
        ("payments/checkpoints/7/manifest.json", StoredName("unknown")),
        ("payments/checkpoints/0000000000/manifest.json", StoredName("unknown")),
        ("payments/shared/window/notes.txt", StoredName("unknown")),
        ("payments/shared/0000000001-0-00000002.seg", StoredName("unknown")),
    ],
)
def test_a_stored_object_is_recognised_by_its_whole_name(key: str, expected: StoredName) -> None:
    assert PATHS.classify(key) == expected


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "a b", "x" * 129])
def test_a_pin_needs_a_portable_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="names no pin"):
        check_pin_name(name)
