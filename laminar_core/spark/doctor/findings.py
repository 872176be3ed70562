"""Judge the facts: which of them stand in the way of a job, and what to do about it.

Pure: facts in, findings out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from laminar_core.spark.doctor.facts import HostFacts, JointFacts

Result = Literal["ok", "warning", "failed"]

CLOCK_DIFFERENCE_MAX_MS = 60_000
"""Above this, ages and times that people give are off by what they notice (docs/deployment.md)."""

SLOW_LINK_BYTES_PER_S = 10_000_000
"""A link below 100 Mbit/s; a worker of most jobs sends more."""

DESCRIPTORS_PER_PEER = 4
DESCRIPTORS_OWN = 256

PYTHON_WORKER_BYTES = 400 << 20
"""A worker needs so much before any state: Python, Arrow, the batches under way."""

LAMINAR = "laminar-core"
_EXACT = (LAMINAR, "pyspark")
_NEEDED = ("pyarrow", "numpy", "pydantic", "pyzmq")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table."""

    check: str
    subject: str
    """A host, a pair of hosts, a path or a setting; empty: all of them."""
    result: Result
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of the job that is to run."""

    workers: int
    state_bytes: int | None = None
    """Memory for the state of one worker; None: it is kept in memory, as much as it takes."""
    heap_bytes: int = 1 << 30
    """The JVM of one executor."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's own versions, and what it sees."""

    python: str
    versions: Mapping[str, str | None]
    digests: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Digest of each input path; None: it is not there."""


def findings_of(hosts: Sequence[HostFacts], driver: Driver, plan: Plan) -> list[Finding]:
    """Return the findings about all hosts, those of one kind together."""
    found = [*_versions(hosts, driver)]
    joint = [(each, each.joint) for each in hosts if each.joint is not None]
    found += _store(joint)
    found += _paths(joint, driver)
    found += _network(joint)
    found += _open_files(joint, plan)
    found += _memory(joint, plan)
    found += _clocks(joint)
    return list(dict.fromkeys(found))  # All tasks of a host see the same.


Joint = Sequence[tuple[HostFacts, JointFacts]]


def _versions(hosts: Sequence[HostFacts], driver: Driver) -> Iterator[Finding]:
    for each in _one_per_host(hosts):
        lacking = [name for name in _NEEDED if each.versions.get(name) is None]
        if each.problem or lacking:
            what = f"lacks {', '.join(lacking)}" if lacking else each.problem
            yield Finding(
                "versions", each.host, "failed", what,
                "install them there, or send an environment with --archives (docs/cluster.md)"
                if lacking
                else "install Laminar there, or send it with --ship",
            )  # fmt: skip
            continue
        differing = [
            f"{name} {each.versions.get(name)} and not {driver.versions.get(name)}"
            for name in driver.versions
            if each.versions.get(name) != driver.versions.get(name)
        ]
        python = _minor(each.python) != _minor(driver.python)
        if python:
            differing.insert(0, f"Python {each.python} and not {driver.python}")
        grave = python or any(text.split()[0] in _EXACT for text in differing)
        if differing:
            yield Finding(
                "versions", each.host, "failed" if grave else "warning", ", ".join(differing),
                "install the driver's versions there",
            )  # fmt: skip
    if not any(each.problem for each in hosts):
        named = (f"{name} {driver.versions.get(name)}" for name in (LAMINAR, "pyarrow", "pyspark"))
        yield Finding("versions", "driver", "ok", f"Python {driver.python}, {', '.join(named)}")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _store(joint: Joint) -> Iterator[Finding]:
    for each, facts in joint:
        if facts.store_problem:
            advice = "mount the store there, or give the executors its credentials"
            yield Finding("store", each.host, "failed", facts.store_problem, advice)
        elif facts.store_missing:
            detail = f"does not see what {', '.join(facts.store_missing)} wrote"
            advice = "mount the same directory on every host, or use a bucket"
            yield Finding("store", each.host, "failed", detail, advice)


def _paths(joint: Joint, driver: Driver) -> Iterator[Finding]:
    for each, facts in joint:
        for path in facts.paths:
            seen = driver.digests.get(path.path)
            if path.problem:
                detail, advice = path.problem, "mount it there, or create it"
            elif path.missing:
                detail = f"does not see what {', '.join(path.missing)} wrote"
                advice = "mount the same directory on every host"
            elif path.path in driver.digests and path.digest != seen:
                detail, advice = "has other files than on the driver", "mount the same on all hosts"
            else:
                continue
            yield Finding("path", f"{path.path} on {each.host}", "failed", detail, advice)


def _network(joint: Joint) -> Iterator[Finding]:
    names = {each.task: each.host for each, _ in joint}
    several = len(set(names.values())) > 1
    for each, facts in joint:
        if facts.network_problem:
            advice = "give the host an address of its own under its name"
            yield Finding("network", each.name, "failed", facts.network_problem, advice)
        elif not facts.driver_reached and not any(f.network_problem for _, f in joint):
            yield Finding(
                "network", f"{each.host} to driver", "failed", "the driver does not answer",
                "open the driver's ports, and set spark.driver.host to an address that hosts reach",
            )  # fmt: skip
        for link in facts.links:
            there = names.get(link.sender, "?")
            pair = f"{there} to {each.host}" if several else f"task {link.sender} to {each.task}"
            if not link.size_bytes:
                advice = "open all ports between the hosts of the cluster"
                yield Finding("network", pair, "failed", "nothing arrives", advice)
                continue
            rate = link.bytes_per_s or 0.0
            slow = rate < SLOW_LINK_BYTES_PER_S
            advice = "look for a slow or lossy link" if slow else ""
            result: Result = "warning" if slow else "ok"
            yield Finding("network", pair, result, f"{rate / 1e6:,.0f} MB/s", advice)


def _open_files(joint: Joint, plan: Plan) -> Iterator[Finding]:
    needed = DESCRIPTORS_OWN + DESCRIPTORS_PER_PEER * plan.workers
    for each, facts in _joint_per_host(joint):
        if 0 <= facts.open_files < needed:  # -1 is no limit.
            detail = f"{facts.open_files} are allowed, {plan.workers} workers need about {needed}"
            yield Finding("open files", each.host, "failed", detail, "raise ulimit -n there")


def _memory(joint: Joint, plan: Plan) -> Iterator[Finding]:
    tasks: dict[str, int] = {}
    for each, _ in joint:
        tasks[each.host] = tasks.get(each.host, 0) + 1
    for each, facts in _joint_per_host(joint):
        here = min(tasks[each.host], plan.workers)
        left = (facts.memory_bytes - plan.heap_bytes) // here
        detail = (
            f"{_gib(facts.memory_bytes)} with a JVM of {_gib(plan.heap_bytes)}: "
            f"{_gib(max(left, 0))} for each of {here} workers"
        )
        needed = PYTHON_WORKER_BYTES + (plan.state_bytes or 0)
        if left >= needed:
            yield Finding("memory", each.host, "ok", detail)
            continue
        advice = (
            f"a worker needs {_gib(needed)}: give the executors more memory "
            "(spark.executor.memoryOverhead), or use fewer workers or less --state-memory"
        )
        yield Finding("memory", each.host, "warning", detail, advice)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _clocks(joint: Joint) -> Iterator[Finding]:
    for each, facts in _joint_per_host(joint):
        ahead_ms = facts.clock_ahead_ms
        if ahead_ms is None or abs(ahead_ms) <= CLOCK_DIFFERENCE_MAX_MS:
            continue
        way = "ahead of" if ahead_ms > 0 else "behind"
        detail = f"{abs(ahead_ms) / 1000:,.0f} s {way} the driver"
        yield Finding("clock", each.host, "warning", detail, "set the clocks by NTP")


def _one_per_host(hosts: Sequence[HostFacts]) -> list[HostFacts]:
    return list({each.host: each for each in reversed(hosts)}.values())[::-1]


def _joint_per_host(joint: Joint) -> list[tuple[HostFacts, JointFacts]]:
    return list({each.host: (each, facts) for each, facts in reversed(joint)}.values())[::-1]


CHECKS = ("versions", "store", "path", "network", "open files", "memory", "clock")
_SEEN = {
    "store": "each host sees what the others wrote",
    "path": "the same on all hosts",
    "network": "all reach each other and the driver",
    "open files": "enough are allowed",
    "clock": "they agree within a minute",
}


def with_ok(found: Sequence[Finding], checked: Sequence[str]) -> list[Finding]:
    """Return the findings in the order of the checks, with a line for a check without any."""
    all_of_them: list[Finding] = []
    for check in checked:
        own = [each for each in found if each.check == check]
        if not own and check in _SEEN:
            own = [Finding(check, "all hosts", "ok", _SEEN[check])]
        all_of_them += own
    return all_of_them
