"""A base that is the copy of a savepoint says so, and only with a checkpoint."""

import pytest
from pydantic import ValidationError

from laminar_core.records.manifest import GenerationBase, parse_record
from laminar_core.records.savepoint_use import SavepointUse

USE = SavepointUse(uri="/backups/s", sha256="0" * 64, claimed=True, timeline_floor=7)


def test_a_base_keeps_what_is_known_of_the_savepoint():
    base = GenerationBase(generation=3, base_checkpoint_id=12, savepoint=USE)
    assert parse_record(GenerationBase, base.to_bytes()) == base


def test_a_base_of_before_savepoints_is_still_read():
    data = b'{"format_version": 1, "generation": 3, "base_checkpoint_id": 12, "closed_by": null}'
    assert parse_record(GenerationBase, data).savepoint is None


def test_a_savepoint_without_the_checkpoint_that_it_became_is_refused():
    with pytest.raises(ValidationError, match="becomes a checkpoint"):
        GenerationBase(generation=3, base_checkpoint_id=None, savepoint=USE)
