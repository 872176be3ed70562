"""Compare the tables of lookups with those of a checkpoint; pure.

A lookup keeps nothing but its table, which is pinned in the operator's description. Rows that were
emitted had the old table, and rows that are read again would get the new one, so a person accepts
that.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from laminar_core.driver.recovery.acceptance import Acceptance, AcceptanceKind, find_acceptance
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.operators.lookups.table import KIND, TABLE
from laminar_core.records.manifest import CheckpointManifest

_PIN = ("size_bytes", "version")


@dataclass(frozen=True, slots=True)
class ChangedTables:
    """The lookups whose table is another one than in the checkpoint."""

    problems: tuple[tuple[str, str], ...] = ()
    """Each a lookup, and the reason why the job cannot continue with it."""
    used: tuple[Acceptance, ...] = ()
    accepted: tuple[str, ...] = ()
    """One line for each table that is accepted."""


def changed_tables(
    manifest: CheckpointManifest,
    descriptions: Mapping[str, JsonObject],
    accepted: Collection[Acceptance],
) -> ChangedTables:
    """Compare the tables that a checkpoint was taken with, and those of the pipeline."""
    problems: list[tuple[str, str]] = []
    used: list[Acceptance] = []
    lines: list[str] = []
    for name, now in descriptions.items():
        before = manifest.operators_description.get(name, {})
        are_lookups = before.get("kind") == now.get("kind") == KIND
        if not are_lookups or before[TABLE] == now[TABLE]:
            continue
        changed = _difference(before[TABLE], now[TABLE])
        by = find_acceptance(accepted, AcceptanceKind.LOOKUP_CHANGE, name)
        if by is None:
            problem = f"checkpoint {manifest.checkpoint_id} was taken with another table of lookup "
            problem += f"{name}: {changed}; bring the files back as they were, or continue with "
            problem += f"them as they are with --accept {AcceptanceKind.LOOKUP_CHANGE}:{name} and "
            problem += "a --reason"
            problems.append((name, problem))
        else:
            used.append(by)
            lines.append(f"{by}: {changed}")
    return ChangedTables(tuple(problems), tuple(used), tuple(lines))


def _difference(before: JsonValue, now: JsonValue) -> str:
    """Name a file that differs, and say how many others do."""
    old, new = _files(before), _files(now)
    differing = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if not differing:
        return "its rows are others"
    name, more = differing[0], len(differing) - 1
    if name not in new:
        said = f"{name} is gone"
    elif name not in old:
        said = f"{name} is new"
    elif old[name]["size_bytes"] != new[name]["size_bytes"]:
        sizes = f"{new[name]['size_bytes']} bytes instead of {old[name]['size_bytes']}"
        said = f"{name} has {sizes}"
    else:
        said = f"{name} was written again, with the same length"
    return said + (f", and {more} more files differ" if more else "")


def _files(table: JsonValue) -> dict[str, JsonObject]:
    files = table.get("files") if isinstance(table, dict) else None
    found: dict[str, JsonObject] = {}
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict):
            found[str(file.get("name"))] = {key: file.get(key) for key in _PIN}
    return found
