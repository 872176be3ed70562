"""Two manifests that say the same say nothing; what only one of them says is None in the other."""

from laminar_core.cli.facts import Fact, changed_facts
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from tests.records.manifests import alignment, manifest


def changed(
    before: CheckpointManifest, after: CheckpointManifest
) -> list[tuple[str, str, object, object]]:
    return [(f.subject, f.name, f.before, f.after) for f in changed_facts(before, after)]


def test_equal_manifests_have_equal_facts():
    assert changed(manifest(), manifest()) == []


def test_each_kind_of_fact_is_seen():
    before, after = manifest(), manifest(generation=3, checkpoint_id=8)
    assert changed(before, after) == [("checkpoint", "generation", 2, 3)]
    later = manifest(alignment=(alignment(watermark_us=5, finished=True),))
    assert changed(before, later) == [
        ("vertex keyed 0", "watermark_us", 1_000_000, 5),
        ("vertex keyed 0", "finished", False, True),
    ]
    entries = list(before.subtasks)
    entries[0] = entries[0].model_copy(update={"properties": {"next_timer_us": 6, "new": [1]}})
    entries[2] = entries[2].model_copy(update={"committables": ()})
    assert changed(before, before.model_copy(update={"subtasks": (*entries,)})) == [
        ("window 0", "next_timer_us", 5, 6),
        ("window 0", "new", None, [1]),
        ("sink 0", "committables", 1, 0),
    ]


def test_subtasks_come_and_go():
    before = manifest()
    more = SubtaskEntry(operator_id="sink", subtask_index=2, sync_ms=1, async_ms=1)
    after = before.model_copy(
        update={
            "parallelism": {"window": 2, "sink": 3},
            "subtasks": (*before.subtasks, more),
            "alignment": (),
        }
    )
    assert Fact("sink", "sink", "parallelism", 2, 3) in list(changed_facts(before, after))
    assert Fact("sink 2", "sink", "committables", None, 0) in list(changed_facts(before, after))
    assert Fact("vertex keyed 0", None, "watermark_us", 1_000_000, None) in list(
        changed_facts(before, after)
    )
