"""Numbers of operators are read from heartbeats of any version."""

from laminar_core.records.operator_numbers import OperatorNumbers, operators_of


def test_heartbeats_of_older_and_newer_drivers_can_be_read() -> None:
    assert operators_of({}) == {}
    assert operators_of({"operators": "none"}) == {}
    newer = {"b": {"rows_in": 3, "invented_later": 7}, "a": {"rows_in": "many"}, "c": {}}
    found = operators_of({"operators": newer})
    assert found == {"b": OperatorNumbers(rows_in=3), "c": OperatorNumbers()}
    assert list(found) == ["b", "c"]


def test_what_is_written_is_read() -> None:
    numbers = OperatorNumbers(rows_in=1, busy_share=0.5, queued_batches=0)
    assert operators_of({"operators": {"sums": numbers.model_dump()}}) == {"sums": numbers}
