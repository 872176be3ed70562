"""Rows and expiry of committables are known, or they are not guessed."""

from laminar_core.records.pre_committed import first_expiry_ms, key_of, rows_of


def test_rows_are_unknown_if_one_committable_does_not_count_them() -> None:
    assert rows_of([]) == 0
    assert rows_of([{"rows": 3}, {"rows": 4}]) == 7
    assert rows_of([{"rows": 3}, {}]) is None
    assert rows_of([{"rows": "3"}]) is None
    assert rows_of([{"rows": True}]) is None


def test_the_first_expiry_counts_and_one_that_cannot_be_read_does_not() -> None:
    assert first_expiry_ms([]) is None
    assert first_expiry_ms([{"rows": 3}, {"expires_at_ms": None}, {"expires_at_ms": "7"}]) is None
    assert first_expiry_ms([{"expires_at_ms": 9}, {}, {"expires_at_ms": 7}]) == 7


def test_committables_that_are_committed_already_do_not_expire() -> None:
    first, second = {"id": "a", "expires_at_ms": 7}, {"id": "b", "expires_at_ms": 9}
    committed = {key_of({"expires_at_ms": 7, "id": "a"})}
    assert first_expiry_ms([second, first], committed) == 9
    assert first_expiry_ms([first], committed) is None
