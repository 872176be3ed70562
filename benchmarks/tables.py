"""Tables of stored results, in Markdown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor, log10

from benchmarks.record import Figure, Machine, Record

ONE_COLUMN = {"median": "{}"}


@dataclass(frozen=True, slots=True)
class Table:
    """Which figures of a benchmark stand where.

    The figure of a cell has the name that results when the row's word is put into the template of
    the column; a cell without a figure stays empty. With one column, units, ranges and targets have
    columns of their own.
    """

    benchmark: str
    rows: Mapping[str, str]
    """The word of each row, by its label."""
    columns: Mapping[str, str]
    """The template of each column, by its heading."""
    corner: str = "figure"
    """The heading above the labels."""
    picture: str = ""
    """The title of the picture beneath the table, which has a line per column; empty for none."""
    drawn: tuple[str, ...] = ()
    """The columns that are in the picture, all of one unit; empty for all."""


def plain_table(record: Record) -> Table:
    """Return a table of all figures by their own names, for a benchmark without a better one."""
    return Table(record.benchmark, {f"`{f.name}`": f.name for f in record.figures}, ONE_COLUMN)


def markdown(table: Table, record: Record) -> str:
    """Return the lines of a table."""
    cells = {
        label: [record.figure(template.format(word)) for template in table.columns.values()]
        for label, word in table.rows.items()
    }
    lines = _list(table, cells) if len(table.columns) == 1 else _grid(table, cells)
    heading, *rows = (
        "|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines
    )
    rule = "|" + "---|" * heading.count(" |")
    return "\n".join([heading, rule, *rows, ""])


_Cells = Mapping[str, list[Figure | None]]


def _list(table: Table, cells: _Cells) -> Iterator[list[str]]:
    figures = [figure for row in cells.values() for figure in row if figure is not None]
    ranges = any(len(figure.values) > 1 for figure in figures)
    targets = any(figure.target is not None for figure in figures)
    yield [
        *(table.corner, *table.columns, *(["lowest to highest"] if ranges else [])),
        *("unit", *(["target"] if targets else [])),
    ]
    for label, (figure,) in cells.items():
        yield [
            *(label, shown(figure.median) if figure else ""),
            *([_range(figure)] if ranges else []),
            *(figure.unit if figure else "", *([_target(figure)] if targets else [])),
        ]


def _grid(table: Table, cells: _Cells) -> Iterator[list[str]]:
    yield [table.corner, *table.columns]
    for label, figures in cells.items():
        yield [label, *(_cell(figure) for figure in figures)]


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    spread = _range(figure)
    return shown(figure.median) + (f" ({spread})" if spread else "")


def _range(figure: Figure | None) -> str:
    if figure is None:
        return ""
    lowest, highest = shown(min(figure.values)), shown(max(figure.values))
    return "" if lowest == highest else f"{lowest} to {highest}"


def _target(figure: Figure | None) -> str:
    if figure is None or figure.target is None:
        return ""
    bound = "at least" if figure.better == "higher" else "at most"
    return f"{bound} {shown(figure.target)}: {'met' if figure.met else 'missed'}"


_MILLION = 1_000_000
_THOUSAND = 1_000


def shown(value: float) -> str:
    """Return a number with three digits that count, as pages write it.

    >>> [shown(n) for n in (14_012_345, 143_977.2, 10.96, 0.0105, 0, 2)]
    ['14.0 M', '144,000', '11.0', '0.0105', '0', '2']
    """
    if value == int(value) and abs(value) < _THOUSAND:
        return str(int(value))
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= _MILLION:
        return f"{_digits(rounded / _MILLION)} M"
    return f"{rounded:,.0f}" if abs(rounded) >= _THOUSAND else _digits(rounded)


def _digits(value: float) -> str:
    decimals = max(2 - floor(log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def caption(record: Record) -> str:
    """Return the sentences that say how, when and where a benchmark was measured."""
    times = {1: "once", 2: "twice"}.get(record.runs, f"{record.runs} times")
    loads = (record.load_before, record.load_after)
    load = "not noted" if None in loads else "{:g} before, {:g} after".format(*loads)
    conditions = f"; {record.conditions}" if record.conditions else ""
    return (
        f"Measured with `{record.command}`, {times}, on {record.began:%Y-%m-%d at %H:%M} UTC, on "
        f"{_where(record.machine)}. Load: {load}{conditions}. "
        f"Values: [{record.benchmark}.json](../benchmarks/results/{record.benchmark}.json).\n"
    )


def _where(machine: Machine) -> str:
    gibibytes = round(machine.memory_bytes / (1 << 30))
    return (
        f"{machine.cores} cores and {gibibytes} GiB ({machine.system}, Python {machine.python}, "
        f"Java {machine.java}, PySpark {machine.pyspark}, pyarrow {machine.pyarrow}, "
        f"Laminar {machine.laminar})"
    )
