"""Differences between two manifests, apart from rows of state."""

from collections.abc import Iterator
from dataclasses import dataclass

from laminar_core.records.manifest import CheckpointManifest

_OF_THE_CHECKPOINT = (
    *("generation", "kind", "mode", "code_version", "max_parallelism"),
    *("size_bytes", "inflight_rows", "inflight_bytes"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One difference. ``subject`` is the checkpoint, a vertex or an operator's subtask."""

    subject: str
    operator_id: str | None
    name: str
    before: object
    after: object


Known = dict[tuple[str, str | None, str], object]
"""By subject, operator and name."""


def changed_facts(before: CheckpointManifest, after: CheckpointManifest) -> Iterator[Fact]:
    """Yield the facts that differ, the checkpoint's first, then in the order of the plan.

    A fact of only one manifest is None in the other.
    """
    old, new = dict(_facts(before)), dict(_facts(after))
    for key in {**new, **old}:
        if old.get(key) != new.get(key):
            yield Fact(*key, before=old.get(key), after=new.get(key))


def _facts(manifest: CheckpointManifest) -> Iterator[tuple[tuple[str, str | None, str], object]]:
    for name in _OF_THE_CHECKPOINT:
        yield ("checkpoint", None, name), getattr(manifest, name)
    for entry in manifest.alignment:
        subject = f"vertex {entry.vertex_id} {entry.subtask_index}"
        yield (subject, None, "watermark_us"), entry.watermark_us
        yield (subject, None, "finished"), entry.finished
    for operator_id, parallelism in manifest.parallelism.items():
        yield (operator_id, operator_id, "parallelism"), parallelism
    for entry in manifest.subtasks:
        subject = f"{entry.operator_id} {entry.subtask_index}"
        for name, value in entry.properties.items():
            yield (subject, entry.operator_id, name), value
        yield (subject, entry.operator_id, "committables"), len(entry.committables)
