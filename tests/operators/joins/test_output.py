"""The pieces of a result: every row once, in its order, and none larger than allowed."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from laminar_core.operators.joins.output import in_pieces


def test_pieces_are_full_but_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_core.operators.joins.output.OUTPUT_ROWS_MAX", 4)
    for lengths in ([], [0], [3], [4], [9], [1, 2, 3, 0, 9, 1], [8, 4]):
        rows = list(range(sum(lengths)))
        starts = [sum(lengths[:n]) for n in range(len(lengths))]
        tables = [
            pa.table({"n": pa.array(rows[start : start + length], pa.int64())})
            for start, length in zip(starts, lengths, strict=True)
        ]
        pieces = [piece.column("n").to_pylist() for piece in in_pieces(tables)]
        assert pieces == [rows[start : start + 4] for start in range(0, len(rows), 4)]


def test_what_is_not_asked_for_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_core.operators.joins.output.OUTPUT_ROWS_MAX", 2)

    def endless() -> Iterator[pa.Table]:
        while True:
            yield pa.table({"n": [1]})

    assert next(iter(in_pieces(endless()))).num_rows == 2
