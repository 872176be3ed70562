"""Compare the state of an operator between two checkpoints of a job."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.difference import Difference, difference
from laminar_core.state.reading import key_columns, unmergeable_columns
from laminar_core.state.window_layout import KEY_GROUP
from laminar_core.store.state_reading import StateFiles, read_operator, read_rows

ChangeKind = Literal["added", "removed", "changed"]
_Pair = tuple[pa.Table | None, pa.Table | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table of an operator in both checkpoints, in parts that were compared by themselves."""

    operator_id: str
    parts: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    """Remarks on the counts, such as parts that could not be compared."""
    table: str = ""
    """The table's name; empty for an operator with one."""

    def count(self, kind: ChangeKind) -> int:
        """Return how many keys were added, removed or changed."""
        match kind:
            case "added":
                return sum(part.added.num_rows for part in self.parts)
            case "removed":
                return sum(part.removed.num_rows for part in self.parts)
            case "changed":
                return sum(part.changed_count for part in self.parts)

    @property
    def unchanged_count(self) -> int:
        """The number of keys with equal values in both."""
        return sum(part.unchanged_count for part in self.parts)


def compare_operator(
    files: StateFiles,
    before: CheckpointManifest,
    after: CheckpointManifest,
    operator_id: str,
    table: str = "",
) -> Comparison:
    """Compare the state of one operator, subtask by subtask where these own the same keys.

    ``table``: one of ``table_names``, of an operator that has several.

    Raises:
        CorruptCheckpointError: a file is missing, or not what was written.
        IncompatibleStateError: a newer Laminar wrote it, with state of another meaning.
    """
    old_text, new_text = (m.operators_description.get(operator_id) for m in (before, after))
    has_changed = None not in (old_text, new_text) and old_text != new_text
    notes = ["its definition has changed"] if has_changed else []
    parts: list[Difference] = []
    for old, new in map(_both, _tables(files, before, after, operator_id, table)):
        keys = key_columns(new_text or old_text or {}, new.schema, table)
        if lost := unmergeable_columns(new.schema, table):
            notes.append(f"{', '.join(lost)}: null where only the user's code could merge it")
        if problem := _incomparable(old, new, keys):
            notes.append(f"{problem}: it had {old.num_rows:,} rows and has {new.num_rows:,}")
        else:
            parts.append(difference(_without_key_group(old), _without_key_group(new), keys))
    return Comparison(operator_id, tuple(parts), tuple(dict.fromkeys(notes)), table)


def _tables(
    files: StateFiles,
    before: CheckpointManifest,
    after: CheckpointManifest,
    operator_id: str,
    table: str,
) -> Iterator[_Pair]:
    """Pairs that have the same keys: of one subtask in both, or of the whole operator."""
    old, new = (
        {e.subtask_index: e for e in m.subtasks if e.operator_id == operator_id}
        for m in (before, after)
    )
    owned = [{i: e.properties.get("key_groups") for i, e in side.items()} for side in (old, new)]
    pairs: Iterator[_Pair]
    if owned[0] == owned[1] and None not in owned[0].values():
        pairs = (
            (read_rows(files, before, old[i], table), read_rows(files, after, new[i], table))
            for i in old
        )
    else:
        whole = (read_operator(files, m, operator_id, table) for m in (before, after))
        pairs = iter([(next(whole), next(whole))])
    return (pair for pair in pairs if any(side is not None for side in pair))


def _both(pair: _Pair) -> tuple[pa.Table, pa.Table]:
    """A side that has no rows has the columns of the other one."""
    old, new = pair
    if old is None:
        assert new is not None, "one of them has rows"
        return new.slice(0, 0), new
    return old, old.slice(0, 0) if new is None else new


def _without_key_group(rows: pa.Table) -> pa.Table:
    """It follows from the key, and changes with the number of key groups."""
    return rows.drop_columns([KEY_GROUP]) if KEY_GROUP in rows.schema.names else rows


def _can_be_key(of: pa.DataType) -> bool:
    try:
        require_key_type(of)
    except ConfigurationError:
        return False
    return True


def _incomparable(old: pa.Table, new: pa.Table, keys: tuple[str, ...]) -> str:
    for name in keys or [name for name in old.schema.names if name in new.schema.names]:
        of = new.schema.field(name).type
        if name not in old.schema.names or old.schema.field(name).type != of:
            return f"its key {name} has changed"
        if not _can_be_key(of):
            return f"its rows have no key, and {name} is a {of}"
    return ""
