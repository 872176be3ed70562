"""A simulated disk keeps the contract of a store, whatever a crash or time does to it."""

from random import Random

import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.testing.disk import SimulatedDisk


@pytest.mark.parametrize("seed", range(5))
def test_a_torn_write_shows_in_no_listing_and_under_no_name(seed):
    disk = SimulatedDisk()
    written = disk.tear("job/a.json", b"0123456789", Random(seed))
    assert disk.temporaries == {"job/a.json": b"0123456789"[:written]}
    assert (disk.get("job/a.json"), disk.size("job/a.json")) == (None, None)
    assert (disk.list(""), disk.children("")) == ([], [])
    assert disk.put_if_absent("job/a.json", b"whole")


@pytest.mark.parametrize("seed", range(12))
def test_damage_changes_an_object_and_can_be_repaired(seed):
    disk = SimulatedDisk()
    disk.put("a", b"content")
    how = disk.damage("a", Random(seed))
    found = disk.get("a")
    assert found != b"content"
    assert (found is None) == (how == "lost")
    assert how != "cut off" or len(found) < 7
    assert how != "flipped a bit of" or len(found) == 7
    disk.damage("a", Random(seed)) if found else None
    disk.repair(["a", "never damaged"])
    assert (disk.get("a"), disk.damaged) == (b"content", {})
    assert disk.list("") == ["a"]


def test_only_what_is_named_is_repaired_also_on_a_copy():
    disk = SimulatedDisk()
    for key in ("a", "b"):
        disk.put(key, b"content")
        disk.damage(key, Random(1))
    twin = disk.copy()
    twin.repair(["b"])
    assert (twin.get("a"), twin.get("b")) == (disk.get("a"), b"content")
    assert disk.damaged.keys() == {"a", "b"}, "the other one stays as it is"


def test_a_copy_has_the_same_objects_and_goes_its_own_way():
    disk = SimulatedDisk()
    disk.put("a", b"1")
    twin = disk.copy()
    twin.put("a", b"2")
    disk.put("b", b"3")
    assert (disk.get("a"), twin.get("a"), twin.get("b")) == (b"1", b"2", None)


def test_what_no_store_contains_is_refused_and_its_name_is_taken():
    disk = SimulatedDisk()
    disk.put("a", b"mine")
    disk.make_special("a", 0)
    with pytest.raises(CorruptCheckpointError) as caught:
        disk.get("a")
    assert caught.value.code is ErrorCode.NOT_A_FILE
    assert (disk.size("a"), disk.list(""), disk.put_if_absent("a", b"x")) == (0, ["a"], False)
    disk.make_special("a", 1 << 40)
    with pytest.raises(CorruptCheckpointError) as caught:
        disk.copy().get("a", 100)
    assert (caught.value.code, disk.size("a")) == (ErrorCode.OBJECT_TOO_LARGE, 1 << 40)
    disk.put("a", b"again")
    assert disk.get("a") == b"again"
    disk.make_special("a", 0)
    disk.delete("a")
    assert disk.get("a") is None
