"""A verification of the audit log remembers the one before."""

import pytest

from laminar_core.records.audit import START, AuditReport, Finding, Link
from laminar_core.sensors.facts.audit_memory import AuditMemory, with_memory

NEWEST = Link(7, "new")
SOUND = AuditReport(7, NEWEST, ())
TORN = AuditReport(7, NEWEST, (Finding("unreadable", 3, "torn"), Finding("stray", None, "x")))
KNOWN = AuditMemory(Link(5, "old"))


def test_the_first_time_there_is_nothing_to_compare_with() -> None:
    assert with_memory(SOUND, AuditMemory(), None) == SOUND


@pytest.mark.parametrize(
    ("stored", "kind"), [("old", None), ("other", "changed"), (None, "missing")]
)
def test_the_record_that_was_the_newest_must_still_be_there(stored, kind) -> None:
    found = with_memory(SOUND, KNOWN, stored).findings
    assert [finding.kind for finding in found] == ([] if kind is None else [kind])
    assert all(finding.number == 5 for finding in found)


def test_only_a_sound_log_is_remembered() -> None:
    assert KNOWN.after(SOUND).newest == NEWEST
    assert KNOWN.after(TORN) == KNOWN


def test_what_was_looked_into_counts_no_more_unless_it_is_of_no_record() -> None:
    assert [f.number for f in with_memory(TORN, AuditMemory(accepted=2), None).findings] == [
        3,
        None,
    ]
    assert [f.number for f in with_memory(TORN, AuditMemory(accepted=3), None).findings] == [None]


def test_accepting_gives_up_the_comparison_with_what_is_accepted() -> None:
    assert KNOWN.accepting(5) == AuditMemory(START, 5)
    assert KNOWN.accepting(4) == AuditMemory(KNOWN.newest, 4)
    assert AuditMemory(START, 9).accepting(4).accepted == 9


@pytest.mark.parametrize("newest", [START, NEWEST])
def test_an_acceptance_of_an_earlier_version_is_of_no_record_that_was_still_to_come(newest) -> None:
    """Goal: what is changed after the upgrade is found."""
    memory = AuditMemory(newest, accepted=10**6).after(TORN)
    assert memory == AuditMemory(newest, accepted=7)
    later = AuditReport(9, Link(9, "later"), (Finding("changed", 8, "changed"),))
    assert with_memory(later, AuditMemory(NEWEST, 10**6), "new").findings == later.findings
    assert with_memory(later, memory, "new").findings == later.findings
