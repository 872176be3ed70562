"""A base says which part does not continue from it, and nothing if there is none."""

import pytest
from pydantic import ValidationError

from laminar_core.records.manifest import GenerationBase, parse_record
from laminar_core.records.partial_reset import PartialReset

PART = PartialReset(operators=("out", "sales", "totals"))


def test_a_base_keeps_what_was_reset() -> None:
    base = GenerationBase(generation=3, base_checkpoint_id=12, reset=PART)
    assert parse_record(GenerationBase, base.to_bytes()) == base


def test_a_base_without_a_reset_has_no_word_of_it() -> None:
    base = GenerationBase(generation=3, base_checkpoint_id=12)
    assert b"reset" not in base.to_bytes()
    assert parse_record(GenerationBase, base.to_bytes()).reset is None


def test_a_part_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="while the rest continues from a checkpoint"):
        GenerationBase(generation=3, base_checkpoint_id=None, reset=PART)
