"""Facts that hosts report become findings that say what to do."""

import pytest

from laminar_core.spark.doctor.facts import HostFacts, JointFacts, LinkFacts, PathFacts
from laminar_core.spark.doctor.findings import (
    CHECKS,
    PYTHON_WORKER_BYTES,
    Driver,
    Finding,
    Plan,
    findings_of,
    with_ok,
)

VERSIONS = {
    "laminar-core": "0.1.0",
    "pyspark": "4.3.0",
    "pyarrow": "26.0.1",
    "numpy": "2.4.0",
    "pydantic": "2.12.0",
    "pyzmq": "27.1.0",
}
DRIVER = Driver("3.11.7", VERSIONS, {"/in": "abc"})
PLAN = Plan(workers=2)
GIB = 1 << 30


def host(task: int = 0, name: str | None = None, joint: JointFacts | None = None, **changes):
    facts = {
        "task": task,
        "host": name or f"h{task}",
        "python": "3.11.2",
        "versions": VERSIONS,
        "joint": joint or well(),
    }
    return HostFacts(**facts | changes)


def well(**changes) -> JointFacts:
    facts = {
        "open_files": 65_536,
        "memory_bytes": 8 * GIB,
        "driver_reached": True,
        "clock_ahead_ms": 3.0,
    }
    return JointFacts(**facts | changes)


def found(
    *hosts: HostFacts, plan: Plan = PLAN, driver: Driver = DRIVER
) -> dict[str, list[Finding]]:
    by_check: dict[str, list[Finding]] = {}
    for each in findings_of(hosts, driver, plan):
        by_check.setdefault(each.check, []).append(each)
    return by_check


def only(check: str, *hosts: HostFacts, **options) -> Finding:
    (one,) = [each for each in found(*hosts, **options)[check] if each.result != "ok"]
    assert one.advice
    assert "\n" not in one.detail + one.advice
    return one


def test_hosts_that_are_alike_and_well_have_nothing_against_a_job():
    link = LinkFacts(sender=1, size_bytes=1 << 24, bytes_per_s=4e8)
    findings = findings_of([host(0, joint=well(links=(link,))), host(1)], DRIVER, PLAN)
    assert {each.result for each in findings} == {"ok"}
    checked = with_ok(findings, CHECKS)
    assert list(dict.fromkeys(each.check for each in checked)) == list(CHECKS)
    assert [each.detail for each in checked if each.check == "network"] == ["400 MB/s"]


@pytest.mark.parametrize(
    ("changes", "result", "detail"),
    [
        ({"python": "3.12.1"}, "failed", "Python 3.12.1 and not 3.11.7"),
        (
            {"versions": VERSIONS | {"laminar-core": "0.0.9"}},
            "failed",
            "laminar-core 0.0.9 and not 0.1.0",
        ),
        ({"versions": VERSIONS | {"pyarrow": "25.0"}}, "warning", "pyarrow 25.0 and not 26.0.1"),
        (
            {"versions": VERSIONS | {"pyarrow": None, "pyzmq": None}, "joint": None},
            "failed",
            "lacks pyarrow, pyzmq",
        ),
        (
            {"problem": "ModuleNotFoundError: No module named 'laminar_core'", "joint": None},
            "failed",
            "ModuleNotFoundError: No module named 'laminar_core'",
        ),
    ],
    ids=["python", "laminar", "arrow", "packages", "no laminar"],
)
def test_other_versions_are_named_once_for_a_host(changes: dict, result: str, detail: str):
    two_tasks = [host(task, "h", **changes) for task in (0, 1)]
    one = only("versions", *two_tasks)
    assert (one.subject, one.result, one.detail) == ("h", result, detail)


def test_a_store_that_is_not_shared_is_named():
    one = only("store", host(0), host(1, joint=well(store_missing=("driver", "h0"))))
    assert (one.subject, one.detail) == ("h1", "does not see what driver, h0 wrote")
    refused = only("store", host(0, joint=well(store_problem="/store is not there")))
    assert refused.detail == "/store is not there"


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        (PathFacts(path="/in", digest="other"), "has other files than on the driver"),
        (PathFacts(path="/in", problem="No such file or directory"), "No such file or directory"),
        (PathFacts(path="/out", digest="", missing=("h0",)), "does not see what h0 wrote"),
    ],
    ids=["other", "missing", "not shared"],
)
def test_paths_that_differ_are_named_with_their_host(path: PathFacts, detail: str):
    same = PathFacts(path="/in", digest="abc")
    others = [host(task, "h1", joint=well(paths=(path,))) for task in (1, 2)]
    one = only("path", host(0, joint=well(paths=(same,))), *others)
    assert (one.subject, one.detail) == (f"{path.path} on h1", detail)


def test_pairs_that_do_not_reach_each_other_are_named_both_ways():
    silent = LinkFacts(sender=0, size_bytes=0, bytes_per_s=None)
    slow = LinkFacts(sender=1, size_bytes=1 << 20, bytes_per_s=2e6)
    network = found(host(0, joint=well(links=(slow,))), host(1, joint=well(links=(silent,))))
    assert [(each.subject, each.result, each.detail) for each in network["network"]] == [
        ("h1 to h0", "warning", "2 MB/s"),
        ("h0 to h1", "failed", "nothing arrives"),
    ]


def test_a_driver_that_does_not_answer_and_a_host_without_an_address_are_named():
    away = only("network", host(0, joint=well(driver_reached=False, clock_ahead_ms=None)))
    assert away.subject == "h0 to driver"
    problem = well(network_problem="cannot listen on h0", driver_reached=False)
    silent = well(driver_reached=False)
    assert only("network", host(0, joint=problem), host(1, joint=silent)).subject == "h0 (task 0)"


def test_open_files_memory_and_clocks_have_limits():
    few = only("open files", host(0, joint=well(open_files=1024)), plan=Plan(workers=300))
    assert few.detail == "1024 are allowed, 300 workers need about 1456"
    assert "open files" not in found(host(0, joint=well(open_files=-1)))
    ahead = only("clock", host(0, joint=well(clock_ahead_ms=-90_000.0)))
    assert (ahead.result, ahead.detail) == ("warning", "90 s behind the driver")


def test_memory_is_what_the_jvm_leaves_to_the_workers_of_a_host():
    plan = Plan(workers=2, state_bytes=GIB)
    tasks = [host(task, "h", joint=well(memory_bytes=3 * GIB)) for task in range(4)]
    one = only("memory", *tasks, plan=plan)
    assert one.detail == "3.0 GiB with a JVM of 1.0 GiB: 1.0 GiB for each of 2 workers"
    enough = 2 * (GIB + PYTHON_WORKER_BYTES) + GIB
    tasks = [host(task, "h", joint=well(memory_bytes=enough)) for task in range(4)]
    assert [each.result for each in found(*tasks, plan=plan)["memory"]] == ["ok"]
