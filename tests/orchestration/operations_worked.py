"""The checks that the runbook lists under "It worked when", as assertions; one per heading."""

import json
from collections.abc import Callable, Mapping

from laminar_core.protocol.types import CheckpointId
from laminar_core.store.pins import Pins
from laminar_core.store.retention_log import RetentionLog
from tests.orchestration.operations_world import CHECKPOINTS, World, command

Worked = Callable[[World, str], None]
NEWEST = max(CHECKPOINTS)


def status() -> dict[str, object]:
    code, said = command("laminar status --json")
    assert code == 0, said
    return json.loads(said)


def a_new_generation_runs(world: World, said: str) -> None:
    del said
    assert (world.store.claims.newest() or 0) > 1
    driver = status()["driver"]
    assert isinstance(driver, dict)
    assert driver["state"] == "running"


def the_newest_generation_is_stopped(world: World, said: str) -> None:
    del world, said
    driver = status()["driver"]
    assert isinstance(driver, dict)
    assert driver["outcome"] == "stopped"


def a_newer_checkpoint_completed(world: World, said: str) -> None:
    del said
    assert world.store.manifests.ids()[-1] > NEWEST


def it_went_back_to_the_second(world: World, said: str) -> None:
    del said
    newest = world.store.claims.newest()
    assert newest is not None
    base = world.store.generations.read_base(newest)
    assert base is not None
    assert base.base_checkpoint_id == CHECKPOINTS[1]


def the_copy_is_intact(world: World, said: str) -> None:
    del said
    code, verified = command(f"laminar savepoint verify {world.place / 'backups' / 'to-move'}")
    assert code == 0, verified


def it_is_or_was_pinned(world: World, said: str) -> None:
    pinned = Pins(world.store).by_checkpoint()
    assert pinned.keys() == {CheckpointId(2)} or "audit-2026" in said


def no_plan_is_unfinished(world: World, said: str) -> None:
    del said
    assert list(RetentionLog(world.store.objects, world.store.paths).unfinished()) == []


def the_log_is_intact(world: World, said: str) -> None:
    del world, said
    assert command("laminar audit verify")[0] == 0


def the_newest_is_named_as_damaged(world: World, said: str) -> None:
    """The command finds it; what is put back verifies."""
    assert f"{NEWEST}" in said
    assert world.store.verify(CheckpointId(NEWEST)).problem is not None
    assert world.store.verify(CheckpointId(NEWEST - 1)).problem is None


def commands_are_listed(world: World, said: str) -> None:
    """Nothing is mended by looking; the attempts and what became of them are there."""
    del world
    assert f"{NEWEST:,}" in said


def the_mode_is_in_force(world: World, said: str) -> None:
    del world, said
    code, listed = command("laminar control list")
    assert code == 0
    assert "mode" in listed
    assert "completed" in listed


def only_the_newest_is_left_and_there_is_space(world: World, said: str) -> None:
    no_plan_is_unfinished(world, said)
    assert world.store.manifests.ids() == [NEWEST]
    world.store.objects.put(f"{world.store.job}/probe", bytes(4096))


def nothing_was_changed(world: World, said: str) -> None:
    """The store is as it was; the commands read from it, or were refused with the reason."""
    assert world.store.manifests.ids() == list(CHECKPOINTS)
    assert Pins(world.store).by_checkpoint() == {}
    assert f"{NEWEST}" in said or "Read-only file system" in said


def it_says_that_the_store_is_away(world: World, said: str) -> None:
    assert str(world.place / "store") in said


def the_second_is_intact(world: World, said: str) -> None:
    del said
    assert world.store.verify(CheckpointId(2)).problem is None


WORKED: Mapping[str, Worked] = {
    "Start": a_new_generation_runs,
    "Stop": the_newest_generation_is_stopped,
    "Take a checkpoint, or a savepoint": a_newer_checkpoint_completed,
    "Go back": it_went_back_to_the_second,
    "Move a stream to another environment": the_copy_is_intact,
    "Keep a checkpoint": it_is_or_was_pinned,
    "Retention, left-over files, costs": no_plan_is_unfinished,
    "Verify the audit log": the_log_is_intact,
    "Job dead": a_new_generation_runs,
    "Job stuck": commands_are_listed,
    "Nothing restorable": the_newest_is_named_as_damaged,
    "Alignment": the_mode_is_in_force,
    "Source retention": a_newer_checkpoint_completed,
    "Check failed": the_second_is_intact,
    "Store down": it_says_that_the_store_is_away,
    "Store full": only_the_newest_is_left_and_there_is_space,
    "Store read-only": nothing_was_changed,
}
