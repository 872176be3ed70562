"""Stored operators are matched with those of the plan by id."""

from laminar_core.operators.mapping import MappingReport, difference, mapping_report

BEFORE = {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}, "d": {}, "e": {"x": 1}}
NOW = {"a": {"x": 1}, "b": {"x": 2, "y": 3}, "e": {"x": 2}, "f": {}}
REPORT = mapping_report(BEFORE, NOW, frozenset("abc"))


def test_each_id_is_in_its_place() -> None:
    assert (
        MappingReport(
            mapped=("a", "e"),  # e has no state, so it may change; so may d go.
            changed=(("b", "x was 1, is 2; y was null, is 3"),),
            dropped=("c",),
            new=("f",),
        )
        == REPORT
    )
    assert (REPORT.fits, REPORT.unmapped) == (False, ("b", "c", "f"))


def test_equal_definitions_fit_in_any_order() -> None:
    report = mapping_report({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, frozenset("a"))
    assert (report.fits, report.mapped) == (True, ("a",))


def test_one_line_for_each() -> None:
    assert REPORT.lines() == [
        "a: fits",
        "e: fits",
        "b: changed, x was 1, is 2; y was null, is 3",
        "c: has state, but is not in the pipeline",
        "f: new, not in the checkpoint",
    ]
    assert REPORT.problems().startswith("b: changed")
    assert REPORT.problems().count("; ") == 3


def test_what_is_equal_is_not_a_difference() -> None:
    assert difference({"a": 1, "b": [1]}, {"a": 1, "b": [1]}) == ""
