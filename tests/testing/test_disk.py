"""A simulated disk keeps the contract of a store, whatever a crash or time does to it."""

from random import Random

import pytest

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
