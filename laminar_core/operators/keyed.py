"""Functions that operators with keyed state share when they are restored."""

from collections.abc import Sequence

from laminar_core.codec.key_groups import key_group_range
from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.operators.base import JsonObject, JsonValue, Snapshot, SubtaskContext


def owned_key_groups(context: SubtaskContext) -> range:
    """Return the key groups that the subtask owns."""
    return key_group_range(context.subtask_index, context.max_parallelism, context.parallelism)


def key_group_properties(context: SubtaskContext) -> JsonObject:
    """Return the key groups of a snapshot as its properties."""
    owned = owned_key_groups(context)
    return {"key_groups": [owned.start, owned.stop]}


def restored_key_groups(snapshots: Sequence[Snapshot], context: SubtaskContext) -> list[range]:
    """Return the key groups of each snapshot; together they cover the subtask's, each once.

    Raises:
        ProtocolError: a key group would be lost or counted twice, without any other sign.
    """
    owned = owned_key_groups(context)
    ranges = [range(*integers(s.properties["key_groups"])) for s in snapshots]
    restored = [group for one in ranges for group in one if group in owned]
    if sorted(restored) != list(owned):
        raise ProtocolError(
            ErrorCode.ILLEGAL_EVENT,
            f"subtask {context.subtask_index} of {context.operator_id!r} owns key"
            f" groups {owned} and was given {sorted(restored)}",
        )
    return ranges


def number(value: JsonValue) -> int:
    """Read a number from a snapshot's properties."""
    assert isinstance(value, int), value
    return value


def integers(value: JsonValue) -> list[int]:
    """Read a list of numbers from a snapshot's properties."""
    assert isinstance(value, list), value
    return [item for item in value if isinstance(item, int)]
