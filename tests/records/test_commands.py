"""Commands and results are read back as they were written, and nothing else is."""

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import (
    CancelJob,
    ControlCommand,
    ControlResult,
    SetMode,
    StopJob,
    TakeCheckpoint,
    TakeSavepoint,
)
from laminar_core.records.manifest import parse_record

ACTIONS = [
    TakeCheckpoint(),
    TakeSavepoint(target="/backups/s"),
    StopJob(),
    StopJob(target="s3://bucket/s"),
    CancelJob(),
    SetMode(mode="unaligned"),
    SetMode(mode=5_000),
]


def command(action) -> ControlCommand:
    return ControlCommand(
        command_id="host/1/2",
        job="payments",
        generation=3,
        action=action,
        actor="ann",
        actor_kind=ActorKind.PERSON,
        reason="a test",
        requested_at_ms=1,
        expires_at_ms=2,
    )


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_a_command_is_read_back(action):
    written = command(action)
    assert parse_record(ControlCommand, written.to_bytes()) == written


def test_an_action_that_this_version_does_not_know_is_no_command():
    data = command(TakeCheckpoint()).to_bytes().replace(b'"checkpoint"', b'"rescale"')
    with pytest.raises(CorruptCheckpointError, match="not readable as ControlCommand"):
        parse_record(ControlCommand, data)


@pytest.mark.parametrize("mode", ["faster", -1, 1.5])
def test_a_mode_is_a_word_or_milliseconds(mode):
    data = command(SetMode(mode=7)).to_bytes()
    said = f'"{mode}"' if isinstance(mode, str) else str(mode)
    with pytest.raises(CorruptCheckpointError):
        parse_record(ControlCommand, data.replace(b'"mode": 7', f'"mode": {said}'.encode()))


def test_a_result_is_read_back():
    written = ControlResult(
        outcome="completed", generation=3, answered_at_ms=4, checkpoint_id=5, details={"a": None}
    )
    assert parse_record(ControlResult, written.to_bytes()) == written
