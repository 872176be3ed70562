"""Lookups, in a table or in a stream of versions: ``Stream.lookup``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from laminar_core.arguments import require_methods
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.joins.side import SUFFIX
from laminar_core.operators.lookups.columns import LookupColumns, LookupHow
from laminar_core.operators.lookups.table import LookupRows, Matches, Table
from laminar_core.operators.lookups.versions import Life, VersionLookup
from laminar_core.pipeline.joins import On, Times, key_names, time_columns
from laminar_core.records.paths import check_operator_id
from laminar_core.units import Duration, duration_us

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream


class Lookups:
    """The part of ``Stream`` that looks rows up."""

    def lookup(  # noqa: PLR0913 - a configuration, by keyword
        self,
        other: "Table | Stream",
        name: str,
        *,
        on: On,
        how: LookupHow = "left",
        columns: str | Sequence[str] | None = None,
        suffix: str = SUFFIX,
        matches: Matches = "one",
        deleted: str | None = None,
        ttl: Duration | None = None,
        time: Times = None,
    ) -> "Stream":
        """Give each row at once what a table, or a stream of versions, has for its key.

            payments.lookup(LookupTable.parquet("rates/"), "rates", on="currency")
            payments.lookup(merchants, "merchants", on={"merchant": "id"}, deleted="is_closed")

        ``on``: the key columns, by a mapping if their names differ. Null matches nothing. ``how``:
        rows for which nothing is found have nulls, or are dropped (``inner``). ``columns``: the one
        that is added, or several, by default all; a name that is taken gets the ``suffix``.

        A *table* is pinned by its files when this is called, and each worker has it in memory. A
        checkpoint is not continued with other files, unless a person accepts that
        (``--accept lookup-change:NAME``). Several rows of one key are refused, unless ``matches``
        is ``all``: then each is a match.

        Of a *stream*, the newest row of each key is kept, for ever or for the ``ttl`` after its
        event time (``time``: the column, of both streams or of each). Where ``deleted`` is true,
        the key is forgotten. A row gets what is known when it comes, so a result can differ from
        run to run: ``as_of`` waits for event time, and does not.

        Raises:
            ConfigurationError: keys, times or names do not fit, an option is for the other kind,
                or there are no files.
        """
        check_operator_id(name)
        if isinstance(columns, str):
            columns = (columns,)
        if columns is not None:
            require_methods(columns, ("__iter__",), f"{name}: columns must be a column, or several")
        added = None if columns is None else tuple(columns)
        left_keys, right_keys = key_names(on)
        looked_up = LookupColumns(left_keys, right_keys, how, added, suffix)
        rows = cast("Stream", self)
        if isinstance(other, Lookups):
            _refuse(name, "a stream", {"matches": matches != "one"})
            return _in_versions(rows, other, name, looked_up, deleted=deleted, ttl=ttl, time=time)
        given = {"deleted": deleted is not None, "ttl": ttl is not None, "time": time is not None}
        _refuse(name, "a table", given)
        wanted = f"{name} looks up in a table, such as LookupTable.parquet(path), or in a stream"
        require_methods(other, ("schema", "pinned"), wanted)
        return _in_table(rows, other, name, looked_up, matches)


def _in_table(
    rows: "Stream", table: Table, name: str, columns: LookupColumns, matches: Matches
) -> "Stream":
    columns.check(name, rows.schema, table.schema)
    used = [*columns.right_keys, *columns.added(table.schema).names]
    operator = LookupRows(name, table.pinned(used), columns, matches)
    updates = rows.updates
    if updates.mode == "upsert":
        same_key = bool(updates.key) and {*columns.left_keys} <= {*updates.key}
        if matches == "all" or (columns.how == "inner" and not same_key):
            raise _refused(
                f"{name} would leave rows behind: rows of this stream replace earlier ones of "
                f"{', '.join(updates.key) or 'their key'}, and a new one may have other matches; "
                'use how="left" with one match'
            )
    return rows.then(operator)


def _in_versions(  # noqa: PLR0913 - the options of Stream.lookup
    rows: "Stream",
    versions: "Stream",
    name: str,
    columns: LookupColumns,
    *,
    deleted: str | None,
    ttl: Duration | None,
    time: Times,
) -> "Stream":
    if time is not None and ttl is None:
        raise _refused(f"{name} uses event time only to forget versions: pass a ttl, or no time")
    updates = versions.updates
    if updates.mode == "upsert":
        if {*updates.key} != {*columns.right_keys}:
            raise _refused(
                f"versions of {name} replace earlier ones of {', '.join(updates.key) or 'a key'}, "
                f"and are looked up by {', '.join(columns.right_keys)}: look up by the same key"
            )
        versions = versions.changes()  # The newest row of a key counts, which is what they mean.
    life = None
    if ttl is not None:
        left, right = time_columns(rows, versions, name, time)
        life = Life(duration_us(ttl), left.name, right.name, left.lag_us)
    hidden = () if deleted is None else (deleted,)
    operator = VersionLookup(name, replace(columns, hidden=hidden), deleted, life)
    columns.check(name, rows.schema, versions.schema)
    keyed = versions.key_by(*columns.right_keys)
    result = rows.key_by(*columns.left_keys).connect(keyed, operator=operator)
    known = rows.event_time
    return result if known is None else result.timed(known.through(rows.schema, result.schema))


def _refuse(name: str, kind: str, given: dict[str, bool]) -> None:
    for option, is_given in given.items():
        if is_given:
            raise _refused(f"{name} looks up in {kind}, which has no {option}: leave it out")


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_PIPELINE, problem)
