"""Deletions alone never hide an act, as long as anything is left that names it or a later one.

Method: a small log with everything that names its records is built by the code that writes them,
then every subset of all these objects is deleted, verified, appended to, and verified again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pytest

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.audit import AuditRecord, Finding
from laminar_core.records.manifest import Heartbeat
from laminar_core.records.paths import JobPaths
from laminar_core.store.audit_anchors import read_anchors
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.store.owner import this_process
from tests.store.stores import damage, write

JOB = "payments"
PATHS = JobPaths(JOB)
FIRST = Generation(1)
RECORDS = 5


def open_log(objects: MemoryObjectStore, key: bytes | None = None) -> AuditLog:
    return AuditLog(objects, PATHS, lambda: 1, key=key)


def act(log: AuditLog, action: str) -> AuditRecord:
    return log.append(action=action, actor=Actor("ann"))


def a_short_life(*, key: bytes | None = None) -> MemoryObjectStore:
    """A job that started, completed a checkpoint, was pinned by somebody, and ended."""
    objects = MemoryObjectStore()
    store, log = CheckpointStore(objects, JOB), open_log(objects, key)
    claimant = Claimant(this_process(), Actor("ann"), "laminar 0", 1)
    store.claims.claim(
        claimant, wait_ms=lambda _: None, announce=lambda _: act(log, "claim").reference()
    )
    store.generations.record_base(FIRST, None, audited=act(log, "start-fresh").reference())
    written = write(store, 1, FIRST)
    act(log, "set-mode")
    store.manifests.publish(written.model_copy(update={"audited": log.newest()}))
    act(log, "pin")
    store.generations.beat(FIRST, Heartbeat(sequence=1, at_ms=1, audited=log.newest()))
    store.generations.end(FIRST, "stopped", "", audited=act(log, "end").reference())
    return objects


@dataclass(frozen=True, slots=True)
class Part:
    """Objects that are deleted together, and the newest record that they name."""

    keys: tuple[str, ...]
    names: int
    is_record: bool = False


HOLDERS = (
    Part((PATHS.audit_head,), 5),
    Part((PATHS.claim(FIRST),), 1),
    Part((PATHS.base(FIRST), PATHS.base_copy(FIRST)), 2),
    Part((PATHS.manifest(CheckpointId(1)),), 3),
    Part((PATHS.heartbeat(FIRST),), 4),
    Part((PATHS.end(FIRST),), 5),
)
# A record names the one before it.
PARTS = HOLDERS + tuple(
    Part((PATHS.audit_record(n),), n - 1, is_record=True) for n in range(1, RECORDS + 1)
)


def subsets(size_max: int) -> Iterator[tuple[Part, ...]]:
    for size in range(1, size_max + 1):
        yield from combinations(PARTS, size)


def without(whole: MemoryObjectStore, parts: tuple[Part, ...]) -> MemoryObjectStore:
    gone = {name for part in parts for name in part.keys}
    objects = MemoryObjectStore()
    for name in whole.list(""):
        data = whole.get(name)
        if name not in gone and data is not None:
            objects.put(name, data)
    return objects


def still_named(deleted: tuple[Part, ...]) -> int:
    """The newest record that something is left of, or names."""
    left = [part for part in PARTS if part not in deleted]
    return max((part.names + part.is_record for part in left), default=0)


def test_a_log_with_all_that_names_it_has_no_findings():
    objects = a_short_life()
    assert open_log(objects).verify().findings == ()
    named = {anchor.holder: anchor.ref.number for anchor in read_anchors(objects, PATHS).found}
    assert named == {
        "the claim of generation 1": 1,
        "the base of generation 1": 2,
        "the manifest of checkpoint 1": 3,
        "the heartbeat of generation 1": 4,
        "the end of generation 1": 5,
    }


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("key", "size_max"), [(None, len(PARTS)), (b"k", 3)])
def test_no_subset_of_deletions_hides_a_record_that_anything_still_names(key, size_max):
    tried, whole = 0, a_short_life(key=key)
    for deleted in subsets(size_max):
        gone = {part.names + 1 for part in deleted if part.is_record}
        newest = still_named(deleted)
        if not any(number <= newest for number in gone):
            continue
        tried += 1
        objects = without(whole, deleted)
        names = [name for part in deleted for name in part.keys]
        assert open_log(objects).verify(key=key).findings, names
        appended = act(open_log(objects, key), "pin")
        assert appended.number > newest, names
        found = open_log(objects).verify(key=key).findings
        assert any(finding.kind in {"missing", "head", "changed"} for finding in found), names
    assert tried > (1_000 if size_max == len(PARTS) else 100)


def test_what_nothing_is_left_to_name_is_not_seen():
    """The limit, as docs/security.md has it: the end of the log, and everything that knew of it."""
    later = tuple(part for part in PARTS if part.names + part.is_record > 1)
    assert open_log(without(a_short_life(), later)).verify().findings == ()
    assert open_log(without(a_short_life(), PARTS)).verify().findings == ()


def test_records_and_head_that_are_deleted_leave_a_gap_that_the_next_append_does_not_fill():
    objects = a_short_life()
    for number in range(2, RECORDS + 1):
        objects.delete(PATHS.audit_record(number))
    objects.delete(PATHS.audit_head)
    missing = Finding(
        "missing", 2, "records 2 to 5 are cut off: the end of generation 1 names record 5"
    )
    assert open_log(objects).verify().findings == (missing,)
    appended = act(open_log(objects), "pin")
    assert (appended.number, appended.head_lost) == (6, True)
    problems = [finding.problem for finding in open_log(objects).verify().findings]
    assert problems[0] == "records 2 to 5 are missing"


def test_a_log_that_is_gone_with_all_claims_is_not_empty():
    objects = a_short_life()
    for key in objects.list(PATHS.audit):
        objects.delete(key)
    objects.delete(PATHS.claim(FIRST))
    problems = [finding.problem for finding in open_log(objects).verify().findings]
    assert problems == [
        "records 1 to 5 are cut off: the end of generation 1 names record 5",
        "the claim of generation 1 is gone, and which record it named is unknown",
    ]


@pytest.mark.parametrize("how", ["torn", "rotten"])
@pytest.mark.parametrize(
    ("holder", "name"),
    [
        (HOLDERS[1], "the claim of generation 1"),
        (HOLDERS[2], "the base of generation 1"),
        (HOLDERS[3], "the manifest of checkpoint 1"),
        (HOLDERS[4], "the heartbeat of generation 1"),
        (HOLDERS[5], "the end of generation 1"),
    ],
)
def test_what_should_name_a_record_and_cannot_be_read_is_reported(holder, name, how):
    objects = a_short_life()
    store = CheckpointStore(objects, JOB)
    for key in holder.keys:
        damage(store, key, how)
    (finding,) = open_log(objects).verify().findings
    assert finding.kind == "anchor"
    assert finding.problem.startswith(f"{name} cannot be read, and which record it names is")


def test_an_unreadable_claim_is_of_no_record_after_the_next_one_that_is_named():
    objects = a_short_life()
    damage(CheckpointStore(objects, JOB), PATHS.claim(FIRST), "torn")
    (finding,) = open_log(objects).verify().findings
    assert finding.number == 2  # Of the base.


def test_an_unreadable_manifest_is_nothing_to_the_log_once_a_newer_one_names_a_record():
    objects = a_short_life()
    store, log = CheckpointStore(objects, JOB), open_log(objects)
    store.manifests.publish(write(store, 2, FIRST).model_copy(update={"audited": log.newest()}))
    damage(store, PATHS.manifest(CheckpointId(1)), "torn")
    assert open_log(objects).verify().findings == ()


def test_a_checkpoint_whose_generation_has_no_claim_says_that_there_was_one():
    objects = a_short_life()
    for part in HOLDERS:
        if PATHS.manifest(CheckpointId(1)) not in part.keys:
            for key in part.keys:
                objects.delete(key)
    problems = [finding.problem for finding in open_log(objects).verify().findings]
    assert "the claim of generation 1 is gone, and which record it named is unknown" in problems


def test_what_was_kept_is_named_though_the_head_goes_back():
    objects = a_short_life()
    log, early = open_log(objects), objects.get(PATHS.audit_head)
    act(open_log(objects), "pin")
    newest = log.newest()
    assert early is not None
    objects.put(PATHS.audit_head, early)
    assert log.newest() != newest  # Nobody has said that it was read in the job's store.
    log.keep(newest)
    assert log.newest() == newest
    log.keep(None)
    assert log.newest() == newest


def test_a_head_that_goes_back_is_no_news_to_a_process_that_has_seen_more():
    objects = a_short_life()
    log = open_log(objects)
    early = objects.get(PATHS.audit_head)
    act(log, "pin")
    objects.delete(PATHS.audit_record(6))
    assert early is not None
    objects.put(PATHS.audit_head, early)
    newest = log.newest()
    assert newest is not None
    assert newest.number == 6
    assert act(log, "pin").number == 7
    problems = [finding.problem for finding in open_log(objects).verify().findings]
    assert problems == ["record 6 is missing"]
