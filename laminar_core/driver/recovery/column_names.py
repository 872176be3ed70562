"""Columns that have another name in the pipeline than in the checkpoint, as a person says; pure.

A name is given for one operator. The columns that its description names, and the columns of its
state and of rows in flight to it (``state.column_names``), are then read under the new name. A pair
that was applied already does nothing, so the option may stay, as that for operators may.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from laminar_core.driver.recovery.start_texts import ColumnRename
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.plan.plan import INPUTS_KEY, Plan
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of

_COLUMNS = frozenset(
    {
        "keys",
        "right_keys",
        "column",
        "more",
        "time",
        "until",
        "time_column",
        "producer",
        "generation",
        "sequence",
    }
)
"""Members of descriptions that name columns."""
_ANY_ORDER = "aggregates"
"""The member whose elements may come and go, so that places say nothing."""
_KEYED = ", keyed by "
_PARTS = ("", "-combine")

Names = Mapping[str, Mapping[str, str]]
"""Per operator: new names of columns by old ones."""


def names_of(renames: Iterable[ColumnRename]) -> Names:
    """Return the names by operator; both parts of an aggregation have them."""
    found: dict[str, dict[str, str]] = {}
    for one in renames:
        for part in _PARTS:
            found.setdefault(one.operator_id + part, {})[one.before] = one.now
    return found


def with_column_names(manifest: CheckpointManifest, plan: Plan, names: Names) -> CheckpointManifest:
    """Return the checkpoint whose descriptions have the new names where the pipeline has them."""
    now = plan.descriptions()
    described = {
        operator_id: _described(before, now.get(operator_id), names[operator_id])
        if operator_id in names
        else before
        for operator_id, before in manifest.operators_description.items()
    }
    if described == manifest.operators_description:
        return manifest
    return manifest.model_copy(
        update={
            "operators_description": described,
            "fingerprint": {o: fingerprint_of(d) for o, d in described.items()},
        }
    )


def refused_renames(
    manifest: CheckpointManifest,
    plan: Plan,
    renames: Sequence[ColumnRename],
    stored: Mapping[str, AbstractSet[str]],
    applied: AbstractSet[ColumnRename],
) -> Iterator[str]:
    """Yield why a rename cannot be, or is of nothing.

    ``stored``: per operator, the columns of its rows in the checkpoint; none if it has no rows.
    ``applied``: those that are done by this start.
    """
    where, ids = f"checkpoint {manifest.checkpoint_id}", set(plan.operator_ids())
    for one in renames:
        columns = stored.get(one.operator_id, frozenset())
        done = one.now in columns and one.before not in columns
        if one.operator_id not in ids:
            yield f"{one}: the pipeline has no {one.operator_id}"
        elif columns and one not in applied and not done:
            yield (
                f"{one}: {where} has no column {one.before} of {one.operator_id} that is called "
                f"{one.now} in the pipeline; it has {', '.join(sorted(columns))}"
            )


def applied_to_descriptions(
    manifest: CheckpointManifest, plan: Plan, renames: Iterable[ColumnRename]
) -> frozenset[ColumnRename]:
    """Return the renames that change the description of their operator."""
    return frozenset(
        one for one in renames if with_column_names(manifest, plan, names_of([one])) is not manifest
    )


def _described(before: JsonObject, now: JsonObject | None, names: Mapping[str, str]) -> JsonObject:
    """Return a description with the new names of columns."""
    found: JsonObject = {}
    for member, value in before.items():
        wanted = None if now is None else now.get(member)
        if member in _COLUMNS:
            found[member] = _columns(value, wanted, names)
        elif member == INPUTS_KEY and isinstance(value, list):
            found[member] = [
                _keyed_by(str(text), str(other), names)
                for text, other in zip(value, _as_long(value, wanted), strict=True)
            ]
        else:
            found[member] = _inside(value, None if member == _ANY_ORDER else wanted, names)
    return found


def _inside(value: JsonValue, now: JsonValue, names: Mapping[str, str]) -> JsonValue:
    if isinstance(value, dict):
        return _described(value, now if isinstance(now, dict) else None, names)
    if isinstance(value, list):
        others = _as_long(value, now)
        return [_inside(one, other, names) for one, other in zip(value, others, strict=True)]
    return value


def _columns(value: JsonValue, now: JsonValue, names: Mapping[str, str]) -> JsonValue:
    """Return one column, or several, with the new names that the pipeline has in this place."""
    if isinstance(value, list):
        others = _as_long(value, now)
        return [_columns(one, other, names) for one, other in zip(value, others, strict=True)]
    if not isinstance(value, str):
        return value
    new = names.get(value, value)
    return new if now in (None, new) else value


def _keyed_by(text: str, now: str, names: Mapping[str, str]) -> str:
    """Return the description of an input with the new names of its keys."""
    upstream, keyed, columns = text.partition(_KEYED)
    before, after = (said.split(", ") for said in (columns, now.partition(_KEYED)[2]))
    others = after if len(after) == len(before) else before
    pairs = zip(before, others, strict=True)
    return upstream + keyed + ", ".join(str(_columns(one, other, names)) for one, other in pairs)


def _as_long(value: Sequence[JsonValue], now: JsonValue) -> Sequence[JsonValue]:
    """Return what the pipeline has in the same places, or nothing if there are more or fewer."""
    return now if isinstance(now, list) and len(now) == len(value) else [None] * len(value)
