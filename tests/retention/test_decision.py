"""Retention by example; ``test_retention_model`` has the rules."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.pin import Pin
from laminar_core.retention.decision import (
    left_overs_policy,
    plan_retention,
    without_checkpoints,
)
from laminar_core.retention.facts import (
    DAY_MS,
    HOUR_MS,
    Completed,
    Incomplete,
    RetentionFacts,
    RetentionPolicy,
    StoredFile,
    Trace,
    Unreadable,
)
from laminar_core.retention.view import restorable

NOON_MS = 20_000 * DAY_MS + 12 * HOUR_MS
"""Friday, 4 October 2024."""


def parse(text: str, *, bases: str = "1<-", hours_ago: str = "", **changes) -> RetentionFacts:
    """Facts from ``1 2! 3? 4. 5s``: whole, damaged, unreadable, incomplete, savepoint.

    All are of generation 1 unless ``@2`` says otherwise; all but the last are committed.
    ``hours_ago`` gives their ages in this order; without it all are as old.
    """
    words = text.split()
    ages = [int(a) for a in hours_ago.split()] or [1] * len(words)
    checkpoints, files = [], []
    for word, age in zip(words, ages, strict=True):
        name, _, generation = word.partition("@")
        number = CheckpointId(int(name.rstrip("!?.s")))
        writer = Generation(int(generation or 1))
        own = StoredFile(f"checkpoints/{number}/state", 10, "part", number)
        shared = StoredFile(f"shared/{number}", 100, "shared", generation=writer)
        files += [own, shared]
        if "?" in name:
            path = f"checkpoints/{number}/manifest.json"
            checkpoints.append(Unreadable(number, "torn", path))
        elif "." in name:
            files.pop()
            checkpoints.append(Incomplete(number, writer))
        else:
            checkpoints.append(
                Completed(
                    checkpoint_id=number,
                    generation=writer,
                    completed_at_ms=NOON_MS - age * HOUR_MS,
                    files={own.path: 10, shared.path: 100},
                    is_savepoint="s" in name,
                    damage="rotten" if "!" in name else None,
                )
            )
    ids = [c.checkpoint_id for c in checkpoints]
    told = [word.partition("<") for word in bases.split()]
    fields = {
        "now_ms": NOON_MS,
        "newest_generation": Generation(max(int(g) for g, _, _ in told)),
        "bases": tuple(
            Base(Generation(int(g)), None if b == "-" else CheckpointId(int(b))) for g, _, b in told
        ),
        "checkpoints": tuple(checkpoints),
        "committed": frozenset(ids),
        "files": tuple(files),
    }
    return RetentionFacts(**fields | changes)


def deleted(facts: RetentionFacts, **policy) -> list[int]:
    return list(plan_retention(facts, RetentionPolicy(**policy)).deleted_ids)


def why(facts: RetentionFacts, checkpoint_id: int, **policy) -> str:
    plan = plan_retention(facts, RetentionPolicy(**policy))
    (verdict,) = [v for v in plan.checkpoints if v.checkpoint_id == checkpoint_id]
    return f"{verdict.action}: {'; '.join(verdict.reasons)}"


class TestCounting:
    def test_the_last_ones_stay(self):
        assert deleted(parse("1 2 3 4 5"), keep_last=2) == [1, 2, 3]

    def test_what_cannot_be_restored_is_not_counted(self):
        facts = parse("1 2 3! 4 5? 6")
        assert [c.checkpoint_id for c in restorable(facts)] == [6, 4, 2, 1]
        assert deleted(facts, keep_last=3) == [1]
        assert why(facts, 3, keep_last=3).startswith("keep: damaged, and newer than 2")

    def test_damaged_ones_go_when_enough_newer_ones_can_be_restored(self):
        assert deleted(parse("1! 2 3"), keep_last=2) == [1]
        assert deleted(parse("1! 2 3"), keep_last=3) == []

    def test_a_savepoint_stays_until_a_later_generation_goes_on_without_it(self):
        assert deleted(parse("1s 2 3"), keep_last=1) == [2]
        assert deleted(parse("1s 2 3"), keep_last=1, keep_savepoints=False) == [1, 2]
        assert deleted(parse("1 2s 3@2 4@2", bases="1<- 2<1"), keep_last=2) == [2]

    def test_checkpoints_of_runs_that_announced_nothing_stay_and_count(self):
        facts = parse("1 2 3@2 4@2 5@2", bases="1<- 2<2", announced=frozenset({Generation(2)}))
        assert deleted(facts, keep_last=1, only_announced=True) == [3, 4]
        assert why(facts, 1, keep_last=1, only_announced=True) == (
            "keep: generation 1 announced no deletion at its start"
        )
        assert deleted(facts, keep_last=1) == [1, 3, 4]
        nobody = replace(facts, announced=frozenset())
        assert deleted(nobody, keep_last=1, only_announced=True) == []

    def test_an_orphan_of_a_run_that_announced_nothing_stays(self):
        facts = parse("1 2 3@2 4@2", bases="1<- 2<1", announced=frozenset({Generation(2)}))
        assert deleted(facts, keep_last=1, only_announced=True) == [3]
        assert deleted(facts, keep_last=1) == [2, 3]

    def test_orphans_of_a_zombie_go_and_are_not_counted(self):
        facts = parse("1 2 3@2 4@1 5@2", bases="1<- 2<2")
        assert deleted(facts, keep_last=3) == [1, 4]
        assert (
            why(facts, 4) == "delete: a later generation continued without it: it is never restored"
        )

    def test_savepoints_stay_unless_asked(self):
        assert deleted(parse("1s 2 3"), keep_last=1) == [2]
        assert deleted(parse("1s 2 3"), keep_last=1, keep_savepoints=False) == [1, 2]


class TestTiers:
    def test_the_newest_of_each_hour_day_and_week(self):
        facts = parse("1 2 3 4 5 6 7", hours_ago="340 180 30 26 4 1 1")
        assert deleted(facts, keep_last=1) == [1, 2, 3, 4, 5, 6]
        assert deleted(facts, keep_last=1, hourly=2) == [1, 2, 3, 4, 6]
        assert deleted(facts, keep_last=1, daily=2) == [1, 2, 3, 5, 6]
        assert deleted(facts, keep_last=1, weekly=3) == [3, 4, 5, 6]

    def test_weeks_begin_on_mondays_and_days_at_midnight_utc(self):
        sunday, monday = 20_002 * DAY_MS, 20_003 * DAY_MS  # 6 and 7 October 2024.
        facts = parse("1 2 3 4")
        times = (sunday, monday - 1, monday, monday + 1)
        aged = tuple(
            replace(c, completed_at_ms=t) for c, t in zip(facts.checkpoints, times, strict=True)
        )
        facts = replace(facts, checkpoints=aged, now_ms=monday + DAY_MS)
        assert deleted(facts, keep_last=1, weekly=2) == [1, 3]

    def test_hours_without_a_checkpoint_do_not_count(self):
        assert deleted(parse("1 2 3", hours_ago="200 100 1"), keep_last=1, hourly=3) == []


class TestAge:
    def test_too_old_ones_go_but_for_the_fewest(self):
        facts = parse("1 2 3 4", hours_ago="50 40 30 20")
        assert deleted(facts, keep_last=4, max_age_ms=25 * HOUR_MS) == [1, 2, 3]
        assert deleted(facts, keep_last=4, max_age_ms=25 * HOUR_MS, min_kept=2) == [1, 2]
        assert why(facts, 2, keep_last=4, max_age_ms=25 * HOUR_MS) == "delete: too old"

    def test_the_newest_stays_at_any_age(self):
        assert deleted(parse("1 2", hours_ago="900 800"), max_age_ms=1) == [1]

    def test_what_is_from_the_future_is_not_too_old(self):
        facts = parse("1 2 3", hours_ago="-100 50 1")
        assert deleted(facts, keep_last=3, max_age_ms=2 * HOUR_MS) == [2]

    def test_a_clock_that_stepped_back_does_not_make_an_older_one_newer(self):
        facts = parse("1 2 3", hours_ago="1 5 9")
        assert deleted(facts, keep_last=1) == [1, 2]


class TestProtection:
    def test_nothing_goes_while_a_generation_has_not_said_what_it_starts_from(self):
        facts = parse("1 2 3", newest_generation=Generation(2))
        plan = plan_retention(facts, RetentionPolicy(keep_last=1))
        assert plan.is_empty
        assert "generation 2 is claimed" in (plan.blocked or "")
        assert [v.action for v in plan.checkpoints] == ["blocked", "blocked", "keep"]

    @pytest.mark.parametrize("changes", [{"newest_generation": None}, {"checkpoints": ()}])
    def test_nothing_goes_if_nothing_is_known(self, changes):
        assert plan_retention(parse("1 2 3", **changes), RetentionPolicy()).blocked

    def test_what_is_newer_than_the_newest_restorable_stays_even_an_orphan(self):
        facts = parse("1 2@1 3@1 4!@2", bases="1<- 2<1")
        assert [c.checkpoint_id for c in restorable(facts)] == [1]
        assert deleted(facts, keep_last=1) == []
        assert why(facts, 2) == "keep: newer than the newest that can be restored"

    def test_what_the_newest_generation_started_from_stays(self):
        facts = parse("1 2 3@2 4@2", bases="1<- 2<1")
        assert deleted(facts, keep_last=1) == [2, 3]
        assert "generation 2 started from it" in why(facts, 1, keep_last=1)

    def test_what_may_not_be_committed_yet_stays(self):
        facts = parse("1 2 3 4 5", committed=frozenset({CheckpointId(1), CheckpointId(3)}))
        assert deleted(facts, keep_last=1) == [1, 2]
        assert why(facts, 4, keep_last=1) == "keep: it may not be committed yet"

    def test_a_commit_of_another_timeline_protects_only_what_is_newer(self):
        facts = parse("1 2 3 4@2 5@2", bases="1<- 2<1")
        facts = replace(facts, committed=frozenset({CheckpointId(1), CheckpointId(3)}))
        assert deleted(facts, keep_last=1) == []

    def test_pins_and_holds(self):
        pin = Pin("audit", "eve", "to compare")
        facts = parse("1 2 3 4", pins={CheckpointId(1): (pin,)})
        assert deleted(facts, keep_last=1) == [2, 3]
        assert why(facts, 1, keep_last=1) == "keep: pinned as audit by eve: to compare"
        over = Pin("drill", "sensor", "restored", NOON_MS)
        held = Pin("drill", "sensor", "restored", NOON_MS + 1)
        facts = parse("1 2 3", pins={CheckpointId(1): (over,), CheckpointId(2): (held,)})
        assert deleted(facts, keep_last=1) == [1]

    def test_what_was_decided_is_finished_and_not_counted(self):
        facts = parse("1 2 3", marked=frozenset({CheckpointId(2)}))
        assert [c.checkpoint_id for c in restorable(facts)] == [3, 1]
        assert deleted(facts, keep_last=2) == [2]
        assert why(facts, 2) == "delete: its deletion was decided before"


class TestFiles:
    def test_a_shared_file_goes_with_the_last_that_names_it(self):
        facts = parse("1 2 3 4")
        first, second, third, fourth = facts.checkpoints
        second = replace(second, files={**second.files, "shared/1": 100})
        fourth = replace(fourth, files={**fourth.files, "shared/3": 100})
        facts = replace(facts, checkpoints=(first, second, third, fourth))
        plan = plan_retention(facts, RetentionPolicy(keep_last=1))
        found = {v.path: (v.action, v.checkpoint_id) for v in plan.files}
        assert found["shared/1"] == ("delete", 2)
        assert found["shared/3"] == ("keep", None)
        assert found["checkpoints/3/state"] == ("delete", 3)
        assert plan.deleted_bytes == 3 * 10 + 2 * 100

    def test_a_manifest_that_cannot_be_read_may_name_any_shared_file(self):
        plan = plan_retention(parse("1? 2 3 4"), RetentionPolicy(keep_last=1))
        assert plan.deleted_ids == (2, 3)
        assert {v.path for v in plan.deleted_files} == {
            "checkpoints/2/state",
            "checkpoints/3/state",
        }
        assert why(parse("1? 2 3 4"), 1) == "report: torn"

    def test_an_unreadable_one_goes_after_quarantine_if_asked(self):
        policy = RetentionPolicy(keep_last=1, delete_unreadable=True)
        facts = parse("1? 2 3")
        path = "checkpoints/1/manifest.json"
        seen = plan_retention(facts, policy)
        assert [v.path for v in seen.quarantined_files] == [path]
        assert seen.deleted_ids == (2,)
        later = replace(facts, quarantined={path: NOON_MS - DAY_MS})
        assert plan_retention(later, policy).deleted_ids == (1, 2)

    def test_left_overs_wait_in_quarantine(self):
        facts = parse("1 2. 3@2 4@2", bases="1<- 2<1")
        path = "checkpoints/2/state"
        first = plan_retention(facts, RetentionPolicy())
        assert [v.path for v in first.quarantined_files] == [path]
        young = replace(facts, quarantined={path: NOON_MS - DAY_MS + 1})
        assert plan_retention(young, RetentionPolicy()).is_empty
        old = replace(facts, quarantined={path: NOON_MS - DAY_MS})
        plan = plan_retention(old, RetentionPolicy())
        assert [v.path for v in plan.deleted_files] == [path]
        assert plan.abandoned == (2,)

    def test_attempts_of_generations_that_are_over_are_abandoned_before_anything_goes(self):
        facts = parse("1 2. 3. 4@2 5.@2 6@2 7.", bases="1<- 2<1")
        nothing = plan_retention(replace(facts, quarantined={}), RetentionPolicy(keep_last=9))
        assert nothing.abandoned == ()
        facts = parse("1 2. 3. 4@2 5.@2 6@2 8@2 9.", bases="1<- 2<1")
        plan = plan_retention(facts, RetentionPolicy(keep_last=1))
        assert plan.deleted_ids == (4, 6)
        assert plan.abandoned == (2, 3)

    @pytest.mark.parametrize(
        ("text", "bases"),
        [
            ("1 2. 3", "1<-"),  # Its generation still runs.
            ("1 2.@2 3@2", "1<- 2<1"),
            ("1 3@2 4.@1", "1<- 2<1"),  # Newer than all that can be restored.
        ],
    )
    def test_what_may_be_under_way_is_no_left_over(self, text, bases):
        assert plan_retention(parse(text, bases=bases), RetentionPolicy()).is_empty

    def test_an_increment_waits_until_its_generation_is_over(self):
        increment = StoredFile("shared/x", 7, "shared", generation=Generation(1))
        running = parse("1 2")
        running = replace(running, files=(*running.files, increment))
        assert plan_retention(running, RetentionPolicy()).is_empty
        over = parse("1 2 3@2", bases="1<- 2<2")
        over = replace(over, files=(*over.files, increment))
        (seen,) = plan_retention(over, RetentionPolicy()).quarantined_files
        assert seen.path == "shared/x"

    def test_only_reported_if_asked(self):
        facts = parse("1 2. 3@2", bases="1<- 2<1")
        plan = plan_retention(facts, RetentionPolicy(delete_left_overs=False))
        assert plan.is_empty
        assert [v.action for v in plan.files if "/2/" in v.path] == ["report"]


class TestHistory:
    def test_the_newest_are_remembered(self):
        traces = tuple(Trace(CheckpointId(n)) for n in (1, 2, 3))
        facts = parse("4 5", traces=traces)
        assert plan_retention(facts, RetentionPolicy()).forgotten == ()
        assert plan_retention(facts, RetentionPolicy(history_keep=1)).forgotten == (1, 2)

    def test_old_ones_are_forgotten_and_unknown_ages_are_not_old(self):
        traces = (
            Trace(CheckpointId(1)),
            Trace(CheckpointId(2), ended_at_ms=NOON_MS - DAY_MS - 1),
            Trace(CheckpointId(3), ended_at_ms=NOON_MS - DAY_MS),
        )
        policy = RetentionPolicy(history_max_age_ms=DAY_MS)
        assert plan_retention(parse("4 5", traces=traces), policy).forgotten == (2,)

    def test_nothing_that_is_newer_than_the_newest_commit(self):
        traces = (Trace(CheckpointId(2)),)
        facts = parse("1 4", traces=traces, committed=frozenset({CheckpointId(1)}))
        assert plan_retention(facts, RetentionPolicy(history_keep=0)).forgotten == ()


class TestLeftOversAlone:
    """No checkpoint goes, and nothing that one names; whatever the policy says otherwise."""

    def plan(self, text: str, quarantined: Sequence[str] = (), stray: str = "shared/9"):
        policy = RetentionPolicy(keep_last=1, max_age_ms=1, delete_unreadable=True)
        waited = dict.fromkeys([*quarantined, stray], 1)
        facts = parse(text, bases="1<- 2<5", quarantined=waited)
        left = StoredFile(stray, 100, "shared", generation=Generation(1))
        facts = replace(facts, files=(*facts.files, left))
        return plan_retention(facts, left_overs_policy(policy))

    def test_what_waited_goes_and_checkpoints_stay(self):
        plan = without_checkpoints(self.plan("1 2! 3. 4 5 6@2", ["checkpoints/3/state"]))
        assert [f.path for f in plan.deleted_files] == ["checkpoints/3/state", "shared/9"]
        assert plan.deleted_ids == ()
        assert plan.abandoned == (3,)

    def test_what_a_later_generation_went_on_without_is_left_to_others(self):
        whole = self.plan("1 2 4 5 6@1 7@2")
        assert whole.deleted_ids == (6,)
        plan = without_checkpoints(whole)
        assert [f.path for f in plan.deleted_files] == ["shared/9"]
        assert 6 not in {v.checkpoint_id for v in plan.checkpoints}

    def test_what_an_unreadable_manifest_may_name_stays(self):
        plan = without_checkpoints(self.plan("1? 3. 4 5 6@2", ["checkpoints/3/state"]))
        assert [f.path for f in plan.deleted_files] == ["checkpoints/3/state"]

    def test_with_nothing_to_delete_no_attempt_is_buried(self):
        plan = self.plan("1 3. 5 6@1 7@2")
        files = tuple(f for f in plan.files if f.path != "shared/9")
        assert (plan.deleted_ids, plan.abandoned) == ((6,), (3,))
        left = without_checkpoints(replace(plan, files=files))
        assert (left.deleted_files, left.abandoned) == ((), ())
