from dataclasses import replace

import pytest

from laminar_core.protocol.recovery import (
    Claim,
    Predecessor,
    ReadManifest,
    Refuse,
    RefuseClaim,
    RestoreFrom,
    StartFresh,
    VerifyFiles,
    commits_to_redrive,
    decide_claim,
    decide_restore,
    on_timeline,
    why_unexpected,
)
from laminar_core.protocol.recovery_facts import (
    Absent,
    Base,
    BeingDeleted,
    ManifestFact,
    Readable,
    RestoreFacts,
    RestoreRequest,
    Unreadable,
)
from laminar_core.protocol.types import CheckpointId, Generation


def parse_bases(text: str) -> tuple[Base, ...]:
    """``2<5 3<-``: generation 2 started from checkpoint 5, generation 3 fresh."""
    pairs = (word.split("<") for word in text.split())
    return tuple(
        Base(Generation(int(g)), None if base == "-" else CheckpointId(int(base)))
        for g, base in pairs
    )


def parse_store(checkpoints: str, bases: str = "", committed_by: int | None = None) -> RestoreFacts:
    """Facts from ``5@2/4 6@2/5! 7? 8. 9?@1 3~ *``.

    ``5@2/4``: generation 2 wrote it, its parent is 4; ``!`` a file is damaged; ``?`` the manifest
    is unreadable; ``.`` there is none; ``~`` it is being deleted; ``*`` the output is committed.
    Each was completed ten seconds after the one before it, by number.
    """
    manifests: dict[CheckpointId, ManifestFact] = {}
    damage: dict[CheckpointId, str | None] = {}
    committed = set()
    for word in checkpoints.split():
        text = word.rstrip("*")
        number, _, rest = text.rstrip("!.~").replace("?", "").partition("@")
        checkpoint_id = CheckpointId(int(number))
        generation, _, parent = rest.partition("/")
        writer = Generation(int(generation)) if generation else None
        if "~" in text:
            manifests[checkpoint_id] = BeingDeleted()
        elif "?" in text:
            manifests[checkpoint_id] = Unreadable("torn", writer)
        elif writer is None:
            manifests[checkpoint_id] = Absent()
        else:
            parent_id = CheckpointId(int(parent)) if parent else None
            manifests[checkpoint_id] = Readable(writer, parent_id, 10_000 * checkpoint_id)
        damage[checkpoint_id] = "rotten" if "!" in text else None
        if word.endswith("*"):
            committed.add(checkpoint_id)
    return RestoreFacts(
        candidates=frozenset(manifests),
        bases=parse_bases(bases),
        committed=frozenset(committed),
        newest_commit_by=None if committed_by is None else Generation(committed_by),
        manifests=manifests,
        damage=damage,
    )


class TestOnTimeline:
    @pytest.mark.parametrize(
        ("manifest", "bases", "expected"),
        [
            ("5@1", "", True),
            ("5@1", "1<-", True),  # Its own base is no constraint.
            ("5@1", "2<5", True),
            ("5@1", "2<6", True),
            ("5@1", "2<4", False),
            ("5@1", "2<-", False),
            ("5@2", "1<- 2<3", True),
            ("5@1", "2<5 3<4", False),  # Generation 3 fell back behind it.
            ("5@1", "2<4 3<9", False),  # Once off, always off.
            ("7@2", "1<- 2<4 3<7", True),
        ],
    )
    def test_every_later_base_must_have_it_behind(self, manifest, bases, expected):
        checkpoint_id, generation = (int(part) for part in manifest.split("@"))
        found = on_timeline(CheckpointId(checkpoint_id), Generation(generation), parse_bases(bases))
        assert found is expected


class TestDecideRestore:
    @pytest.mark.parametrize(
        ("checkpoints", "bases", "restored"),
        [
            ("1@1 2@1/1", "1<-", 2),
            ("1@1 2@1/1 3.", "1<-", 2),  # The newest never completed.
            ("1@1 2@1/1!", "1<-", 1),
            ("1@1 2?", "1<-", 1),
            ("1@1 2@1/1 3@1/2", "1<- 2<2", 2),  # 3 is the orphan of a zombie.
            ("1@1 2@1/1! 3@1/2", "1<- 2<2", 1),
            ("1@1 3@2/1 2@1/1", "1<- 2<1", 3),  # 2 came late.
            ("9@1 10@1/9", "1<-", 10),  # By number, not by text.
        ],
    )
    def test_the_newest_whole_one_on_the_timeline_wins(self, checkpoints, bases, restored):
        decision = decide_restore(parse_store(checkpoints, bases), RestoreRequest())
        assert isinstance(decision, RestoreFrom)
        assert decision.checkpoint_id == restored

    def test_each_rejected_one_is_reported_with_its_reason(self):
        facts = parse_store("1@1 2@1/1! 3? 4. 5@1/2", "1<- 2<4")
        decision = decide_restore(facts, RestoreRequest())
        assert isinstance(decision, RestoreFrom)
        assert [(r.checkpoint_id, r.reason[:12], r.orphan) for r in decision.rejected] == [
            (5, "a generation", True),
            (3, "torn", False),
            (2, "rotten", False),
        ]

    def test_falling_back_behind_committed_output_names_what_comes_again(self):
        decision = decide_restore(parse_store("1@1* 2@1/1!* 3@1/2!*"), RestoreRequest())
        assert isinstance(decision, RestoreFrom)
        assert (decision.checkpoint_id, decision.committed_beyond) == (1, (2, 3))

    def test_without_damage_no_output_comes_again(self):
        decision = decide_restore(parse_store("1@1* 2@1/1*"), RestoreRequest())
        assert decision == RestoreFrom(CheckpointId(2))

    @pytest.mark.parametrize(
        ("checkpoints", "bases", "committed_by"),
        [
            ("", "", None),
            ("", "1<-", None),  # Died before its first checkpoint.
            ("1. 2.", "1<-", None),
            ("1@1", "1<- 2<-", None),  # Told to start fresh before; only the orphan is left.
            ("1?@1", "1<- 2<-", None),  # An unreadable orphan is an orphan.
            ("1@1*", "1<- 2<-", 1),  # What was committed belongs to the time before.
        ],
    )
    def test_a_timeline_without_checkpoints_starts_fresh(self, checkpoints, bases, committed_by):
        facts = parse_store(checkpoints, bases, committed_by)
        assert isinstance(decide_restore(facts, RestoreRequest()), StartFresh)

    @pytest.mark.parametrize(
        ("checkpoints", "bases", "committed_by", "reason"),
        [
            ("1@1! 2@1/1!", "1<-", None, "none of 2 checkpoints can be restored"),
            ("1?", "1<-", None, "torn"),
            ("", "1<- 2<5", None, "checkpoint 5, which the last run started from, is gone"),
            ("6@1/5", "1<- 2<5", None, "checkpoint 5, which the last run started from, is gone"),
            ("3.*", "1<-", 1, "checkpoint 3 was committed and is gone"),
            ("3.*", "", 1, "checkpoint 3 was committed and is gone"),
        ],
    )
    def test_lost_state_is_never_replaced_by_nothing_in_silence(
        self, checkpoints, bases, committed_by, reason
    ):
        facts = parse_store(checkpoints, bases, committed_by)
        decision = decide_restore(facts, RestoreRequest())
        assert isinstance(decision, Refuse)
        assert reason in decision.reason
        assert isinstance(decide_restore(facts, RestoreRequest(allow_fresh=True)), StartFresh)

    def test_starting_fresh_over_committed_output_names_it(self):
        decision = decide_restore(
            parse_store("1@1!* 2@1/1!*", "1<-", 1), RestoreRequest(allow_fresh=True)
        )
        assert isinstance(decision, StartFresh)
        assert decision.committed_beyond == (1, 2)
        assert len(decision.rejected) == 2

    def test_allow_fresh_does_not_pass_over_a_good_checkpoint(self):
        decision = decide_restore(parse_store("1@1"), RestoreRequest(allow_fresh=True))
        assert decision == RestoreFrom(CheckpointId(1))


class TestWantedId:
    def test_it_is_taken_though_there_are_newer_ones(self):
        facts = parse_store("1@1* 2@1/1* 3@1/2")
        decision = decide_restore(facts, RestoreRequest(CheckpointId(1)))
        assert decision == RestoreFrom(CheckpointId(1), committed_beyond=(CheckpointId(2),))

    @pytest.mark.parametrize(
        ("checkpoints", "bases", "reason"),
        [
            ("1@1 2@1/1!", "", "rotten"),
            ("1@1 2?", "", "torn"),
            ("1@1 2.", "", "never completed"),
            ("1@1 2@1/1", "2<1", "continued without it"),
        ],
    )
    def test_nothing_else_will_do(self, checkpoints, bases, reason):
        facts = parse_store(checkpoints, bases)
        decision = decide_restore(facts, RestoreRequest(CheckpointId(2), allow_fresh=True))
        assert isinstance(decision, Refuse)
        assert "checkpoint 2 cannot be restored" in decision.reason
        assert reason in decision.reason

    def test_an_id_nobody_knows_is_asked_for_and_refused(self):
        facts = RestoreFacts(frozenset(), ())
        wanted = CheckpointId(9)
        assert decide_restore(facts, RestoreRequest(wanted, allow_fresh=True)) == ReadManifest(
            wanted
        )
        known = RestoreFacts(frozenset(), (), manifests={wanted: Absent()})
        assert isinstance(decide_restore(known, RestoreRequest(wanted, allow_fresh=True)), Refuse)

    @pytest.mark.parametrize(
        ("checkpoints", "bases", "cause"),
        [
            ("1@1 2@1/1!", "", "damaged"),
            ("1@1 2?", "", "damaged"),
            ("1@1 2.*", "", "damaged"),  # It was complete, or it would not have been committed.
            ("1@1 2.", "", "never-completed"),
            ("1@1", "", "never-completed"),
            ("1@1 2@1/1", "2<1", "orphan"),
            ("1@1 2~", "", "being-deleted"),
        ],
    )
    def test_why_it_cannot_be_had(self, checkpoints, bases, cause):
        facts = parse_store(checkpoints, bases)
        facts = replace(facts, manifests={CheckpointId(2): Absent(), **facts.manifests})
        decision = decide_restore(facts, RestoreRequest(CheckpointId(2)))
        assert isinstance(decision, Refuse)
        assert decision.cause == cause


class TestBefore:
    """Each was completed ten seconds after the one before it."""

    @pytest.mark.parametrize(
        ("checkpoints", "before_ms", "restored"),
        [
            ("1@1 2@1/1 3@1/2", 30_001, 3),
            ("1@1 2@1/1 3@1/2", 30_000, 2),
            ("1@1 2@1/1! 3@1/2", 30_000, 1),
            ("1@1 2? 3@1/2", 30_000, 1),
        ],
    )
    def test_the_newest_whole_one_before_a_time(self, checkpoints, before_ms, restored):
        decision = decide_restore(parse_store(checkpoints), RestoreRequest(before_ms=before_ms))
        assert isinstance(decision, RestoreFrom)
        assert decision.checkpoint_id == restored

    def test_what_is_too_new_is_not_rejected_and_not_read(self):
        decision = decide_restore(parse_store("1@1 2@1/1 3@1/2!"), RestoreRequest(before_ms=15_000))
        assert decision == RestoreFrom(CheckpointId(1))

    def test_that_there_was_none_is_not_that_none_can_be_read(self):
        never = decide_restore(
            parse_store("2@1 3@1/2"), RestoreRequest(before_ms=15_000, allow_fresh=True)
        )
        lost = decide_restore(
            parse_store("1@1! 3@1/1"), RestoreRequest(before_ms=15_000, allow_fresh=True)
        )
        assert isinstance(never, Refuse)
        assert isinstance(lost, Refuse)
        assert (never.cause, lost.cause) == ("never-completed", "damaged")
        assert "1, rotten" in lost.reason


class TestBeingDeleted:
    def test_it_is_no_candidate_and_not_damaged(self):
        decision = decide_restore(parse_store("1@1 2~ 3@1/2!"), RestoreRequest())
        assert isinstance(decision, RestoreFrom)
        assert decision.checkpoint_id == 1
        assert [(r.checkpoint_id, r.cause) for r in decision.rejected] == [
            (3, "damaged"),
            (2, "being-deleted"),
        ]

    def test_alone_it_is_no_loss(self):
        assert isinstance(decide_restore(parse_store("1~", "1<-"), RestoreRequest()), StartFresh)


class TestCommittedAndGone:
    def test_it_is_reported_though_nothing_of_it_is_left(self):
        facts = parse_store("1@1* 2@1/1! 3.*")
        facts = replace(facts, committed=facts.committed | {CheckpointId(4)})
        decision = decide_restore(facts, RestoreRequest())
        assert isinstance(decision, RestoreFrom)
        assert [r.checkpoint_id for r in decision.rejected] == [4, 3, 2]
        assert "manifest is gone" in decision.rejected[0].reason

    def test_newer_ones_that_were_not_looked_at_are_not_gone(self):
        facts = replace(parse_store("1@1* 2@1/1* 3@1/2*"), manifests={})
        facts = replace(facts, manifests={CheckpointId(1): Readable(Generation(1))})
        decision = decide_restore(facts, RestoreRequest(CheckpointId(1)))
        assert decision == RestoreFrom(CheckpointId(1), (), (CheckpointId(2), CheckpointId(3)))


class TestQuestions:
    """Facts are asked for one by one, so that no more is read than is needed."""

    def ask(self, full: RestoreFacts) -> list[str]:
        """Answer every question from ``full``; the questions, in order."""
        asked, manifests, damage = [], {}, {}
        while True:
            facts = RestoreFacts(
                full.candidates, full.bases, full.committed, None, manifests, damage
            )
            match decide_restore(facts, RestoreRequest()):
                case ReadManifest(checkpoint_id):
                    asked.append(f"read {checkpoint_id}")
                    manifests[checkpoint_id] = full.manifests.get(checkpoint_id, Absent())
                case VerifyFiles(checkpoint_id):
                    asked.append(f"verify {checkpoint_id}")
                    damage[checkpoint_id] = full.damage[checkpoint_id]
                case _:
                    return asked

    @pytest.mark.parametrize(
        ("checkpoints", "bases", "asked"),
        [
            ("1@1* 2@1/1* 3@1/2*", "", "read 3, verify 3"),
            ("1@1* 2@1/1 3@1/2", "", "read 3, verify 3, read 2"),  # 2 is to be committed.
            ("1@1* 2@1/1* 3@1/2!*", "", "read 3, verify 3, read 2, verify 2"),
            ("1@1* 2@1/1* 3@1/2*", "2<2", "read 3, read 2, verify 2"),  # Orphans stay unverified.
            ("1. 2.", "", "read 2, read 1"),
            ("5@1/4*", "", "read 5, verify 5"),  # Older ones are deleted.
            ("5@1/4", "", "read 5, verify 5, read 4"),
        ],
    )
    def test_nothing_is_read_that_does_not_matter(self, checkpoints, bases, asked):
        assert ", ".join(self.ask(parse_store(checkpoints, bases))) == asked


class TestCommitsToRedrive:
    @pytest.mark.parametrize(
        ("checkpoints", "restored", "redriven"),
        [
            ("1@1* 2@1/1*", 2, []),
            ("1@1* 2@1/1", 2, [2]),
            ("1@1* 2@1/1 3@1/2", 3, [2, 3]),
            ("1@1 2@1/1 3@1/2", 3, [1, 2, 3]),
            ("1@1 2@1/1* 3@1/2", 3, [3]),  # In order: 1 is committed, its record got lost.
            ("1@1* 2@1/1 3@1/1", 3, [3]),  # 2 was given up after its manifest was written.
            ("1@1* 2@1/1 3@1/2", 2, [2]),  # Not newer than the restored one.
            ("2? 3@1/2 4@2/3", 4, [3, 4]),  # What 2 had, 3 carries.
        ],
    )
    def test_the_uncommitted_ancestors_in_order(self, checkpoints, restored, redriven):
        facts = parse_store(checkpoints)
        assert list(commits_to_redrive(facts, CheckpointId(restored))) == redriven


class TestDecideClaim:
    def predecessor(self, signs) -> Predecessor:
        return Predecessor(Generation(4), "generation 4, process 7", signs)

    def test_the_first_ever_is_generation_1(self):
        assert decide_claim(None, take_over=False) == Claim(Generation(1))

    @pytest.mark.parametrize("signs", ["ended", "gone", "silent"])
    def test_a_job_without_live_owner_is_claimed(self, signs):
        assert decide_claim(self.predecessor(signs), take_over=False) == Claim(Generation(5))

    @pytest.mark.parametrize("signs", ["running", "beating"])
    def test_a_live_owner_is_left_alone_unless_told_otherwise(self, signs):
        decision = decide_claim(self.predecessor(signs), take_over=False)
        assert isinstance(decision, RefuseClaim)
        assert "generation 4, process 7" in decision.reason
        assert decide_claim(self.predecessor(signs), take_over=True) == Claim(Generation(5))


@pytest.mark.parametrize(
    ("newest", "expected", "said"),
    [
        (None, None, None),
        (4, None, None),
        (None, 0, None),
        (4, 4, None),
        (None, 4, "it never ran, and generation 4 was expected"),
        (4, 0, "its newest generation is 4, not none as expected"),
        (4, 3, "its newest generation is 4, not 3 as expected"),
        (4, 5, "its newest generation is 4, not 5 as expected"),
    ],
)
def test_a_driver_that_expects_another_generation_is_told_which_is_the_newest(
    newest, expected, said
):
    told = why_unexpected(newest, expected)
    assert told is None if said is None else said in (told or "")
