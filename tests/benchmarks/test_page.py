"""The page of benchmarks shows the results that are stored, and no others."""

from benchmarks.page import PAGE, names_on, pictures, table_of, updated
from benchmarks.page_tables import TABLES
from benchmarks.record import RESULTS, read_records
from benchmarks.tables import caption, markdown
from tests.benchmarks.test_record import record

AGAIN = "make bench-page (python -m benchmarks.page) writes it anew"


def test_the_page_and_its_pictures_are_those_of_the_stored_results() -> None:
    page, records = PAGE.read_text(), read_records()
    assert updated(page, records) == page, AGAIN
    drawn = pictures(page, records)
    assert {path: path.read_text() for path in drawn} == drawn, AGAIN
    assert {*PAGE.parent.glob("images/figures-*.svg")} == drawn.keys()


def test_every_stored_result_is_on_the_page_and_every_table_has_its_place() -> None:
    records = read_records()
    names = names_on(PAGE.read_text())
    assert len(names) == len({*names}) == PAGE.read_text().count("<!-- figures: ")
    assert {table_of(name, records)[0].benchmark for name in names} == records.keys()
    assert TABLES.keys() <= {*names}
    assert {path.stem for path in RESULTS.iterdir()} == records.keys()


def test_every_row_of_a_table_has_a_figure_and_every_column_too() -> None:
    records = read_records()
    for name in names_on(PAGE.read_text()):
        table, shown = table_of(name, records)
        known = {figure.name for figure in shown.figures}
        for word in table.rows.values():
            assert known & {template.format(word) for template in table.columns.values()}, word
        for template in table.columns.values():
            assert known & {template.format(word) for word in table.rows.values()}, template


def test_only_what_stands_between_marks_is_written() -> None:
    page = "before\n\n<!-- figures: fast -->\n| old |\n<!-- end of figures -->\n\nbehind\n"
    new = updated(page, {"fast": record()})
    table, shown = table_of("fast", {"fast": record()})
    parts = ["before\n", "<!-- figures: fast -->\n", markdown(table, shown), caption(shown)]
    assert new == "\n".join([*parts, "<!-- end of figures -->\n", "behind\n"])
    assert updated(new, {"fast": record()}) == new
