"""Tasks that run in threads of one process find out what they have in common."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from pyspark import cloudpickle

from laminar_core.host.clock import SystemClock
from laminar_core.link.transport import CoordinatorAddress, CoordinatorTransport
from laminar_core.spark.doctor.facts import JointFacts, Request
from laminar_core.spark.doctor.joint import (
    DRIVER,
    delete_tokens,
    digest_of,
    examine,
    sink_token,
    write_token,
)
from laminar_core.spark.doctor.links import Answering

HOSTS = ["a", "b"]


class Gathering:
    """Tasks in threads; each gets what all have given."""

    def __init__(self, tasks: int) -> None:
        self._barrier = threading.Barrier(tasks)
        self._given: list[str] = [""] * tasks

    def of(self, index: int) -> Callable[[str], list[str]]:
        def gather(text: str) -> list[str]:
            self._given[index] = text
            self._barrier.wait(30)
            given = list(self._given)
            self._barrier.wait(30)
            return given

        return gather


def examined(address: CoordinatorAddress, changes=lambda _: {}, **request) -> list[JointFacts]:
    """Run two tasks; ``changes`` makes the request of a task another one."""
    gathering = Gathering(len(HOSTS))

    def task(index: int) -> JointFacts:
        fields = {"run_id": "7", "tasks": len(HOSTS), "address": address} | request
        payload = cloudpickle.dumps(Request(**fields | changes(index)))
        return examine(payload, index, HOSTS[index], gathering.of(index))

    with ThreadPoolExecutor(len(HOSTS)) as pool:
        return list(pool.map(task, range(len(HOSTS))))


@pytest.fixture
def address():
    transport = CoordinatorTransport("ipc", "127.0.0.1", len(HOSTS))
    with closing(Answering(transport, SystemClock())):
        yield transport.address


def test_tasks_reach_each_other_and_the_driver_and_leave_nothing_behind(address, tmp_path: Path):
    store, out, data = tmp_path / "store", tmp_path / "out", tmp_path / "in"
    for folder in (store, out, data):
        folder.mkdir()
    (data / "rows.parquet").write_bytes(b"123")
    request = Request("7", 2, address, str(store), (str(data),), (str(out),))
    write_token(request, DRIVER)
    sink_token(request, str(out), DRIVER).write_bytes(b"")
    fields = {"store_uri": str(store), "source_paths": (str(data),), "sink_paths": (str(out),)}
    for index, facts in enumerate(examined(address, **fields)):
        assert (facts.store_problem, facts.store_missing, facts.network_problem) == ("", (), "")
        assert facts.driver_reached
        assert facts.clock_ahead_ms is not None
        assert abs(facts.clock_ahead_ms) < 10_000
        assert [(link.sender, link.size_bytes) for link in facts.links] == [(1 - index, 16 << 20)]
        source, sink = facts.paths
        assert (source.digest, source.problem) == (digest_of(str(data)), "")
        assert (sink.missing, sink.problem) == ((), "")
    delete_tokens(request, DRIVER)
    assert [file for file in (*store.rglob("*"), *out.iterdir()) if file.is_file()] == []


def test_a_store_and_an_output_that_are_not_shared_show(address, tmp_path: Path):
    for name in ("0", "1", "out"):
        (tmp_path / name).mkdir()

    def changes(index: int) -> dict[str, object]:
        return {"store_uri": str(tmp_path / str(index))}

    gone = {"sink_paths": (str(tmp_path / "out"), str(tmp_path / "nowhere"))}
    first, second = examined(address, changes, **gone)
    assert (first.store_missing, second.store_missing) == ((DRIVER, "b"), (DRIVER, "a"))
    there, nowhere = first.paths
    assert there.missing == (DRIVER,)  # The driver wrote no token here.
    assert nowhere.problem == "no such directory"


def test_a_store_that_a_host_lacks_is_a_problem_and_no_end(address, tmp_path: Path):
    for facts in examined(address, store_uri=str(tmp_path / "away")):
        assert "away" in facts.store_problem
        assert facts.driver_reached


def test_a_digest_of_files_knows_names_and_sizes(tmp_path: Path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.parquet").write_bytes(b"12")
    whole, pattern = digest_of(str(tmp_path)), digest_of(str(tmp_path / "part" / "*.parquet"))
    (tmp_path / "part" / "a.parquet").write_bytes(b"123")
    assert digest_of(str(tmp_path)) != whole
    assert digest_of(str(tmp_path / "part" / "*.parquet")) != pattern
    with pytest.raises(FileNotFoundError):
        digest_of(str(tmp_path / "nowhere"))
