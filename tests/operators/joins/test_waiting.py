"""Partners that are too far away, and rows that wait; both directions have tests of their own."""

import numpy as np

from laminar_core.operators.joins.as_of import AsOfJoin
from laminar_core.operators.joins.forward import ForwardAsOfJoin
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.waiting import within
from laminar_core.state.keyed_rows import MISSING
from tests.operators.joins.join_histories import LEFT_SCHEMA, RIGHT_SCHEMA

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")


def test_a_partner_is_near_on_both_sides_of_a_time() -> None:
    left_us, right_us = np.array([10, 10, 10, 10]), np.array([5, 4, 15, 16])
    partner = np.array([0, 1, 2, 3])
    assert within(partner, left_us, right_us, 5).tolist() == [0, MISSING, 2, MISSING]
    assert within(partner, left_us, right_us, None).tolist() == [0, 1, 2, 3]
    missing = np.array([MISSING])
    assert within(missing, left_us[:1], right_us[:0], 5).tolist() == [MISSING]
    assert within(missing, left_us[:1], right_us[:1], 5).tolist() == [MISSING]


def test_directions_have_one_result_and_other_tables() -> None:
    schemas = LEFT_SCHEMA, RIGHT_SCHEMA
    backward = AsOfJoin("join", LEFT, RIGHT, 5)
    forward = ForwardAsOfJoin("join", LEFT, RIGHT, 5)
    assert backward.output_schema(*schemas).equals(forward.output_schema(*schemas))
    assert list(backward.state_tables(*schemas)) == ["left", "right", "newest"]
    assert list(forward.state_tables(*schemas)) == ["left", "right"]
    assert [forward.waits_us(side) for side in (0, 1)] == [5, 0]
