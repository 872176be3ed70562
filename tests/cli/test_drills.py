"""``laminar drills`` lists what became of each drill."""

import json

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.store.drills import write_drill
from tests.cli.test_drill import record
from tests.store.stores import claim, open_job


def test_every_drill_is_a_line(cli, tmp_path) -> None:
    store = open_job(LocalObjectStore(tmp_path))
    claim(store)
    assert cli("drills", "--store", tmp_path).out.split()[:4] == [
        *("number", "at", "checkpoint", "outcome")
    ]
    passed = write_drill(store, record(number=1))
    failed = write_drill(
        store, record(number=2, outcome="failed", checkpoint_id=None, problems=("a row is lost",))
    )
    _, first, second = cli("drills", "--store", tmp_path).out.splitlines()
    assert first.split()[:5] == ["1", "1970-01-01", "00:00:00", "12", "passed"]
    assert first.split()[5:] == ["2.5", "2.0KiB", "3", "me", "weekly"]
    assert second.split()[3:4] == ["failed"]
    assert second.endswith("weekly; a row is lost")
    told = json.loads(cli("drills", "--store", tmp_path, "--json").out)
    assert told == [passed.model_dump(mode="json"), failed.model_dump(mode="json")]


def test_a_record_that_cannot_be_read_is_reported(cli, tmp_path) -> None:
    store = open_job(LocalObjectStore(tmp_path))
    claim(store)
    write_drill(store, record(number=1))
    store.objects.put(store.paths.drill(2), b"{")
    answer = cli("drills", "--store", tmp_path, "--json")
    assert [one["number"] for one in json.loads(answer.out)] == [1]
    assert answer.code == 0
    assert answer.err.startswith("cannot be read: ")
    assert store.paths.drill(2) in answer.err
