"""From what is known about a sink follows whether the job may start, and what is left out."""

import pytest

from laminar_core.connectors.outlook import Committable, Committed, Doubtful, Lost
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.sinks import Going, Pending, SinkFacts, judge, visible_up_to
from laminar_core.errors import ConfigurationError, ErrorCode
from tests.records.manifests import manifest

A, B = {"name": "a"}, {"name": "b"}
LOST = Lost(5, "5 rows are gone: restore an older checkpoint", (B,))
DOUBTFUL = Doubtful("the marker has expired: look into the topic")


def facts(
    *outlooks, repeat="visible", visible_id=None, recorded_id=None, failure=None
) -> SinkFacts:
    pending = tuple(Pending(n, (A, B), outlook) for n, outlook in enumerate(outlooks, 12))
    return SinkFacts("out", repeat, pending, visible_id, recorded_id, failure)


def codes(verdict) -> list[ErrorCode]:
    return [problem.code for problem in verdict.problems]


BACK_TO_10 = Going("payments", 10)


class TestOutlook:
    def test_what_can_be_committed_and_what_is_committed_is_no_problem(self):
        verdict = judge(facts(Committed(), Committable(), Committable(90), Committable(70)),
                        Going("payments", 15), ())  # fmt: skip
        assert (verdict.problems, verdict.left_out) == ((), ())
        assert (verdict.report.to_commit, verdict.report.expires_at_ms) == (8, 70)

    def test_lost_rows_refuse_the_start_and_an_acceptance_leaves_only_them_out(self):
        refused = judge(facts(LOST, visible_id=11), Going("payments", 12), ())
        assert codes(refused) == [ErrorCode.TRANSACTION_LOST]
        assert refused.report.problem == LOST.why
        accepted = parse_acceptance("sink-lost:out")
        allowed = judge(facts(LOST, visible_id=11), Going("payments", 12), (accepted,))
        assert (allowed.problems, allowed.used, allowed.left_out) == ((), (accepted,), (B,))
        assert allowed.accepted == ("sink-lost:out: 5 rows of checkpoint 12 are lost",)

    @pytest.mark.parametrize(("how", "left_out"), [("committed", (A, B)), ("not", ())])
    def test_a_doubt_refuses_the_start_until_a_person_says_what_happened(self, how, left_out):
        refused = judge(facts(DOUBTFUL), Going("payments", 12), ())
        assert codes(refused) == [ErrorCode.OUTPUT_DOUBTFUL]
        assert "--accept sink-doubt:out=committed or =not" in str(refused.problems[0])
        accepted = parse_acceptance(f"sink-doubt:out={how}")
        allowed = judge(facts(DOUBTFUL), Going("payments", 12), (accepted,))
        assert (allowed.problems, allowed.used, allowed.left_out) == ((), (accepted,), left_out)

    def test_every_problem_is_named(self):
        verdict = judge(facts(LOST, DOUBTFUL, visible_id=14), BACK_TO_10, ())
        assert codes(verdict) == [
            ErrorCode.TRANSACTION_LOST,
            ErrorCode.OUTPUT_DOUBTFUL,
            ErrorCode.OUTPUT_REPEATED,
        ]

    def test_an_acceptance_of_another_sink_does_not_count(self):
        accepted = parse_acceptance("sink-lost:other")
        verdict = judge(facts(LOST), Going("payments", 12), (accepted,))
        assert codes(verdict) == [ErrorCode.TRANSACTION_LOST]
        assert verdict.used == ()

    def test_a_sink_that_refuses_to_answer_is_the_problem(self):
        failure = ConfigurationError(ErrorCode.INVALID_OPTION, "output of another run")
        verdict = judge(facts(failure=failure), BACK_TO_10, ())
        assert verdict.problems == (failure,)


class TestGoingBack:
    """Output that readers see, and that the job is going to produce again."""

    @pytest.mark.parametrize(
        ("repeat", "withdrawn", "repeated", "problems"),
        [
            ("withdrawn", True, False, []),
            ("harmless", False, False, []),
            ("visible", False, True, [ErrorCode.OUTPUT_REPEATED]),
        ],
    )
    def test_only_output_that_stays_visible_refuses_the_start(
        self, repeat, withdrawn, repeated, problems
    ):
        verdict = judge(facts(repeat=repeat, visible_id=12), BACK_TO_10, ())
        assert codes(verdict) == problems
        assert verdict.report.is_withdrawn is withdrawn
        assert verdict.report.is_repeated is repeated

    @pytest.mark.parametrize("visible_id", [None, 9, 10])
    def test_output_up_to_the_base_is_not_repeated(self, visible_id):
        assert judge(facts(visible_id=visible_id), BACK_TO_10, ()).problems == ()

    @pytest.mark.parametrize("visible_id", [None, 9, 11])
    def test_a_target_that_forgot_its_marker_still_shows_what_the_store_recorded(self, visible_id):
        verdict = judge(facts(visible_id=visible_id, recorded_id=12), BACK_TO_10, ())
        assert codes(verdict) == [ErrorCode.OUTPUT_REPEATED]
        assert "output up to checkpoint 12" in str(verdict.problems[0])
        withdrawn = facts(repeat="withdrawn", visible_id=visible_id, recorded_id=12)
        assert judge(withdrawn, BACK_TO_10, ()).problems == ()

    def test_a_person_may_accept_it_for_one_start(self):
        accepted = parse_acceptance("sink-repeat:out")
        verdict = judge(facts(visible_id=12), BACK_TO_10, (accepted,))
        assert (verdict.problems, verdict.used) == ((), (accepted,))
        line = "sink-repeat:out: output of checkpoints 11 to 12 is shown twice"
        assert verdict.accepted == (line,)

    def test_what_an_earlier_start_accepted_does_not_refuse_the_next_one(self):
        going = Going("payments", 10, left_before=frozenset({12}))
        assert judge(facts(visible_id=12), going, ()).problems == ()
        assert codes(judge(facts(visible_id=13), going, ())) == [ErrorCode.OUTPUT_REPEATED]

    def test_a_fresh_job_does_not_continue_the_output_of_another_run(self):
        verdict = judge(facts(visible_id=12), Going("payments", 0, must_be_empty=True), ())
        assert codes(verdict) == [ErrorCode.INVALID_OPTION]
        assert "job payments starts from nothing" in str(verdict.problems[0])

    def test_a_fresh_start_on_request_repeats_everything(self):
        verdict = judge(facts(visible_id=12), Going("payments", 0), ())
        assert codes(verdict) == [ErrorCode.OUTPUT_REPEATED]
        assert "would continue from nothing" in str(verdict.problems[0])


def test_the_output_of_a_savepoint_is_that_of_the_checkpoint_it_was_made_from():
    assert visible_up_to(manifest(checkpoint_id=12)) == 12
    ours = manifest(checkpoint_id=20, parent_checkpoint_id=12, imported_from="file:///savepoint")
    assert visible_up_to(ours) == 12
    foreign = ours.model_copy(update={"parent_checkpoint_id": None})
    assert visible_up_to(foreign) == 20
