"""``laminar checkpoints diff``: show the keys that changed between two checkpoints."""

# Records of JSON have any shape.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from decimal import Decimal
from itertools import islice

import click
import pyarrow as pa
from pydantic_core import to_json

from laminar_core.cli.contents import ROWS_AT_ONCE, Selection, value_text
from laminar_core.cli.facts import Fact, changed_facts
from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.views import ROWS_SHOWN, event_time
from laminar_core.host.terminal import say
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.limits import NUMBER_MAX
from laminar_core.state.difference import Difference, values_differ
from laminar_core.store.comparison import ChangeKind, Comparison, compare_operator
from laminar_core.store.state_reading import table_names

Row = dict[str, object]
Change = dict[str, object]
_SIGNS: dict[ChangeKind, str] = {"added": "+", "removed": "-", "changed": "~"}


@click.command(
    epilog=examples(
        "laminar checkpoints diff 11 12 --store build/store --operator totals",
    ),
)
@store_option
@job_option
@json_option
@click.option("--operator", "operator_id", help="Compare only this operator.")
@click.option(
    "--limit",
    type=click.IntRange(0, NUMBER_MAX),
    help=f"Keys to print of each operator and kind  [default: {ROWS_SHOWN}; all with --json].",
)
@click.argument("before_id", metavar="A", type=click.IntRange(min=1))
@click.argument("after_id", metavar="B", type=click.IntRange(min=1))
def diff(  # noqa: PLR0913 - one parameter per option
    *,
    store: str,
    job: str | None,
    as_json: bool,
    operator_id: str | None,
    limit: int | None,
    before_id: CheckpointId,
    after_id: CheckpointId,
) -> None:
    """Show what changed from checkpoint A to checkpoint B.

    That is keys, source positions, and watermarks.
    """
    opened = open_job(store, job)
    before, after = (opened.manifests.read(i) for i in (before_id, after_id))
    operators = list(dict.fromkeys([*after.parallelism, *before.parallelism]))
    if operator_id is not None:
        if operator_id not in operators:
            Selection(operator_id).check(after)
        operators = [operator_id]
    facts = [f for f in changed_facts(before, after) if f.operator_id in (None, *operators)]
    compared = (
        compare_operator(opened.parts, before, after, one, table)
        for one in operators
        for table in table_names(one, before, after) or ("",)
    )
    with opened.reading(before_id, after_id):
        if as_json:
            _print_json(compared, facts, limit)
        else:
            _print_text(compared, facts, ROWS_SHOWN if limit is None else limit)


# --- rows -------------------------------------------------------------------------------------


def _changes(compared: Comparison, kind: ChangeKind) -> Iterator[Change]:
    """Yield one object per key; rows become Python objects on demand."""
    for part in compared.parts:
        match kind:
            case "added":
                yield from _one_sided("after", part.added, part.keys)
            case "removed":
                yield from _one_sided("before", part.removed, part.keys)
            case "changed":
                yield from _changed(part)


def _one_sided(side: str, rows: pa.Table, keys: tuple[str, ...]) -> Iterator[Change]:
    for row in _rows(rows):
        yield {"key": _key(row, keys), side: _values(row, keys)}


def _changed(part: Difference) -> Iterator[Change]:
    columns = [
        name
        for name in part.after.schema.names
        if name in part.before.schema.names and name not in part.keys
    ]
    masks = {
        name: values_differ(part.before.column(name), part.after.column(name)) for name in columns
    }
    pairs = zip(_rows(part.before), _rows(part.after), strict=True)
    for number, (old, new) in enumerate(pairs):
        names = [name for name in columns if masks[name][number]]
        deltas = {name: delta(old[name], new[name]) for name in names}
        yield {
            "key": _key(new, part.keys),
            "before": {name: old[name] for name in names},
            "after": {name: new[name] for name in names},
            "delta": {name: by for name, by in deltas.items() if by is not None},
        }


def _rows(table: pa.Table) -> Iterator[Row]:
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()


def _key(row: Row, keys: Iterable[str]) -> Row:
    return {name: row[name] for name in keys}


def _values(row: Row, keys: Iterable[str]) -> Row:
    return {name: value for name, value in row.items() if name not in keys}


def delta(before: object, after: object) -> int | float | Decimal | None:
    """Return the difference of two numbers; None if one of them is no number."""
    match before, after:
        case bool(), _:
            return None
        case int(), int():
            return after - before
        case float(), float():
            return after - before
        case Decimal(), Decimal():
            return after - before
        case _:
            return None


# --- printing ---------------------------------------------------------------------------------


def _print_json(compared: Iterable[Comparison], facts: Iterable[Fact], limit: int | None) -> None:
    for fact in facts:
        by = delta(fact.before, fact.after)
        _print_line({"record": "fact", **asdict(fact), "delta": by})
    for one in compared:
        counts = {kind: one.count(kind) for kind in _SIGNS}
        place = {"operator_id": one.operator_id, **({"table": one.table} if one.table else {})}
        summary = {"record": "operator", **place, **counts}
        _print_line({**summary, "unchanged": one.unchanged_count, "notes": list(one.notes)})
        for kind in _SIGNS:
            for change in islice(_changes(one, kind), limit):
                _print_line({"record": "row", **place, "change": kind, **change})


def _print_line(line: Mapping[str, object]) -> None:
    # Times in ISO 8601, bytes in base 64; infinity is no number in JSON.
    click.echo(to_json(line, inf_nan_mode="strings", bytes_mode="base64", serialize_unknown=True))


def _print_text(compared: Iterable[Comparison], facts: Iterable[Fact], limit: int) -> None:
    nothing = True
    for fact in facts:
        nothing = False
        say(f"{fact.subject}: {fact.name} {_step(fact.name, fact.before, fact.after)}")
    for one in compared:
        counts: dict[ChangeKind, int] = {kind: one.count(kind) for kind in _SIGNS}
        if not any(counts.values()) and not one.notes:
            continue
        nothing = False
        said = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        note = f" ({'; '.join(one.notes)})" if one.notes else ""
        which = f"{one.operator_id}, table {one.table}" if one.table else one.operator_id
        say(f"{which}: {said}, {one.unchanged_count:,} unchanged{note}")
        for kind, count in counts.items():
            for change in islice(_changes(one, kind), limit):
                say(f"  {_SIGNS[kind]} {_text(change)}")
            if count > limit:
                say(f"  … and {count - limit:,} more {kind}; --limit or --json prints them")
    if nothing:
        say("nothing has changed")


def _text(change: Mapping[str, object]) -> str:
    key, before, after = (change.get(side) or {} for side in ("key", "before", "after"))
    assert isinstance(key, dict)
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    named = ", ".join(f"{name}={value_text(value)}" for name, value in key.items())
    if before and after:
        steps = [f"{name} {_step(name, before[name], after[name])}" for name in after]
    else:
        steps = [f"{name}={value_text(value)}" for name, value in (before or after).items()]
    return ": ".join(text for text in (named, ", ".join(steps)) if text)


def _step(name: str, before: object, after: object) -> str:
    by = delta(before, after)
    if name.endswith("watermark_us"):
        ahead = "" if by is None else f" ({by / 1_000_000:+,.6f} s)"
        return f"{_time(before)} -> {_time(after)}{ahead}"
    return f"{value_text(before)} -> {value_text(after)}" + ("" if by is None else f" ({by:+,})")


def _time(time_us: object) -> str:
    return event_time(time_us) if isinstance(time_us, int) else "not yet known"
