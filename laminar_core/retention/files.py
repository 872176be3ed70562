"""Decide which files are deleted, given the deleted checkpoints: rules R5 to R7 of ``decision``."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.retention.facts import (
    Completed,
    FileVerdict,
    Incomplete,
    RetentionFacts,
    StoredFile,
    Unreadable,
)
from laminar_core.retention.view import View, has_waited, is_over


def file_verdicts(view: View, deleted: AbstractSet[CheckpointId]) -> Iterator[FileVerdict]:
    """Classify every stored file, given the checkpoints to delete."""
    names = _Names.of(view.facts, deleted)
    for file in sorted(view.facts.files, key=lambda f: f.path):
        yield _judge_file(view, file, names, deleted)
    for checkpoint in view.facts.checkpoints:
        if isinstance(checkpoint, Unreadable) and _is_quarantined_now(view, checkpoint, deleted):
            yield FileVerdict(checkpoint.manifest_path, "quarantine", checkpoint.reason, 0)


def _is_quarantined_now(
    view: View, checkpoint: Unreadable, deleted: AbstractSet[CheckpointId]
) -> bool:
    return (
        view.blocked is None
        and view.policy.delete_unreadable
        and checkpoint.checkpoint_id not in deleted
        and checkpoint.checkpoint_id < view.counted_from_id
        and checkpoint.manifest_path not in view.facts.quarantined
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """The checkpoints that name each file."""

    staying: Mapping[str, list[CheckpointId]]
    going: Mapping[str, CheckpointId]
    """The newest checkpoint to be deleted that names the file: they are deleted together."""
    unreadable_ids: tuple[CheckpointId, ...]
    """They stay, and what they name is unknown."""
    uncommitted: Mapping[str, list[CheckpointId]]
    """The checkpoints that commit a staged file, and have no commit record."""
    incomplete: Mapping[CheckpointId, Generation | None]
    """The attempts without a manifest, and who reserved them."""

    @classmethod
    def of(cls, facts: RetentionFacts, deleted: AbstractSet[CheckpointId]) -> "_Names":
        staying: dict[str, list[CheckpointId]] = {}
        going: dict[str, CheckpointId] = {}
        uncommitted: dict[str, list[CheckpointId]] = {}
        for checkpoint in sorted(facts.checkpoints, key=lambda c: c.checkpoint_id):
            if not isinstance(checkpoint, Completed):
                continue
            if checkpoint.checkpoint_id in deleted:
                going.update(dict.fromkeys(checkpoint.files, checkpoint.checkpoint_id))
            else:
                for path in checkpoint.files:
                    staying.setdefault(path, []).append(checkpoint.checkpoint_id)
            if checkpoint.checkpoint_id not in facts.committed:
                for path in checkpoint.staged:
                    uncommitted.setdefault(path, []).append(checkpoint.checkpoint_id)
        unknown = sorted(
            c.checkpoint_id
            for c in facts.checkpoints
            if isinstance(c, Unreadable) and c.checkpoint_id not in deleted
        )
        incomplete = {
            c.checkpoint_id: c.generation for c in facts.checkpoints if isinstance(c, Incomplete)
        }
        return cls(staying, going, tuple(unknown), uncommitted, incomplete)


def _judge_file(
    view: View, file: StoredFile, names: _Names, deleted: AbstractSet[CheckpointId]
) -> FileVerdict:
    if users := names.staying.get(file.path):
        reason = f"checkpoint {_listed(users)} needs it"
        return FileVerdict(file.path, "keep", reason, file.size_bytes)
    match file.kind:
        case "unknown":
            return FileVerdict(file.path, "report", "not a name of Laminar's", file.size_bytes)
        case "shared":
            return _judge_shared(view, file, names)
        case "staged":
            return _judge_staged(view, file, names)
        case "part":
            assert file.checkpoint_id is not None
            if file.checkpoint_id in deleted:
                reason = f"deleted with checkpoint {file.checkpoint_id}"
                return FileVerdict(file.path, "delete", reason, file.size_bytes, file.checkpoint_id)
            if file.path in names.going:
                # Later checkpoints carried it along, and its own one went before them.
                return _judge_shared(view, file, names)
            return _judge_part(view, file, file.checkpoint_id, names)


def _judge_shared(view: View, file: StoredFile, names: _Names) -> FileVerdict:
    if names.unreadable_ids:
        unknown = _listed(names.unreadable_ids)
        reason = f"checkpoint {unknown} may need it, its manifest is unreadable"
        return FileVerdict(file.path, "keep", reason, file.size_bytes)
    if (last := names.going.get(file.path)) is not None:
        reason = f"deleted with checkpoint {last}, the last that names it"
        return FileVerdict(file.path, "delete", reason, file.size_bytes, last)
    if not is_over(view.facts, file.generation):
        reason = f"generation {file.generation} may still name it"
        return FileVerdict(file.path, "keep", reason, file.size_bytes)
    return _judge_left_over(
        view, file, f"of generation {file.generation}, and no manifest names it"
    )


def _judge_staged(view: View, file: StoredFile, names: _Names) -> FileVerdict:
    """Rows that wait for a commit. The driver deletes them; here are those that it left behind."""
    keep = FileVerdict(file.path, "keep", "", file.size_bytes)
    if names.unreadable_ids:
        unknown = _listed(names.unreadable_ids)
        return _because(keep, f"checkpoint {unknown} may commit it, its manifest is unreadable")
    if users := names.uncommitted.get(file.path):
        return _because(keep, f"checkpoint {_listed(users)} has still to commit it")
    if not is_over(view.facts, file.generation):
        return _because(keep, f"generation {file.generation} may still commit it")
    reason = f"staged by generation {file.generation}, and no checkpoint has still to commit it"
    return _judge_left_over(view, file, reason)


def _judge_part(
    view: View, file: StoredFile, checkpoint_id: CheckpointId, names: _Names
) -> FileVerdict:
    """A file in the folder of a checkpoint that does not go, and named by none that stays."""
    if checkpoint_id not in names.incomplete:
        reason = f"checkpoint {checkpoint_id} stays and does not name it"
        return FileVerdict(file.path, "report", reason, file.size_bytes)
    generation = names.incomplete[checkpoint_id]
    if generation is None:
        reason = f"no record says which generation tried checkpoint {checkpoint_id}"
        return FileVerdict(file.path, "report", reason, file.size_bytes)
    if not is_over(view.facts, generation) or checkpoint_id > view.newest_id:
        reason = f"checkpoint {checkpoint_id} of generation {generation} may be under way"
        return FileVerdict(file.path, "keep", reason, file.size_bytes)
    reason = f"checkpoint {checkpoint_id} never completed, and generation {generation} is over"
    return _judge_left_over(view, file, reason, checkpoint_id)


def _judge_left_over(
    view: View, file: StoredFile, reason: str, checkpoint_id: CheckpointId | None = None
) -> FileVerdict:
    if view.blocked is not None:
        return FileVerdict(file.path, "keep", f"{reason}; but {view.blocked}", file.size_bytes)
    if not view.policy.delete_left_overs:
        return FileVerdict(file.path, "report", reason, file.size_bytes)
    if file.path not in view.facts.quarantined:
        return FileVerdict(file.path, "quarantine", reason, file.size_bytes, checkpoint_id)
    if not has_waited(view, file.path):
        return FileVerdict(file.path, "keep", f"{reason}; in quarantine", file.size_bytes)
    return FileVerdict(file.path, "delete", reason, file.size_bytes, checkpoint_id)


def _because(verdict: FileVerdict, reason: str) -> FileVerdict:
    return FileVerdict(verdict.path, verdict.action, reason, verdict.size_bytes)


def _listed(ids: Sequence[CheckpointId], most: int = 3) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(str(c) for c in ids[:most]) + more
