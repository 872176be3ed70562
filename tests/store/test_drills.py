"""Drill records are found by a listing: numbers may have gaps, and records may be damaged."""

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.store.drills import newest_drill, newest_number, read_drills, write_drill
from tests.cli.test_drill import record
from tests.store.stores import open_job


def test_a_stray_number_costs_one_look_and_not_one_for_each_number_below() -> None:
    objects = MemoryObjectStore()
    store = open_job(objects)
    passed = write_drill(store, record(number=1))
    objects.put(store.paths.drill(8_000_000_000), b"x")
    problems: list[str] = []
    assert newest_drill(store, problems) == passed
    assert read_drills(store, []) == [passed]
    assert newest_number(store) == 8_000_000_000
    assert [store.paths.drill(8_000_000_000) in problem for problem in problems] == [True]
