"""Bad rows: who stops when, and what the message says."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.bad_rows import (
    BadRowCounts,
    BadRowPolicy,
    BadRows,
    OnBadRow,
    SkippedMessage,
    Verdict,
)
from laminar_core.connectors.formats.messages import (
    Defect,
    MessageRefusedError,
    Messages,
    letters_of,
)
from laminar_core.errors import ConfigurationError, ErrorCode

SPLIT = "payments/3"
FAIL, DROP, LETTERS = BadRowPolicy(), BadRowPolicy("drop"), BadRowPolicy("letters")


def letters(bad: list[int], first: int = 1000) -> pa.RecordBatch:
    """Letters of the messages with these indexes; their offsets begin at ``first``."""
    count = max(bad, default=0) + 1
    messages = Messages(pa.array(count * [b"oops"]), pa.array(range(first, first + count)))
    return letters_of(
        messages, {n: MessageRefusedError(Defect.MALFORMED, f"not JSON: {n}") for n in bad}
    )


def judged(policy: BadRowPolicy, bad: list[int], messages: int = 10, skip: str = "") -> Verdict:
    skipped = [SkippedMessage.parse(text) for text in skip.split()]
    rows = BadRows("pay", policy, skipped)
    return rows.judge(BadRowCounts(), SPLIT, letters(bad), messages)


def test_by_default_the_first_one_stops_the_job_in_one_line() -> None:
    verdict = judged(FAIL, [4, 7])
    assert verdict.letters.num_rows == 0
    assert verdict.failure.code is ErrorCode.BAD_ROW
    assert verdict.failure.exit_code == 3
    assert str(verdict.failure) == (
        "pay, split payments/3, offset 1004: not JSON: 4 (malformed); leave out this message "
        "with --skip-bad pay:payments/3:1004, or keep such messages with on_bad_row=LettersTo(...)"
    )


def test_what_the_message_suggests_leaves_out_this_message_and_no_other() -> None:
    verdict = judged(FAIL, [4, 7], skip="pay:payments/3:1004")
    assert "offset 1007" in str(verdict.failure)
    verdict = judged(FAIL, [4, 7], skip="pay:payments/3:1004 pay:payments/3:1007")
    assert verdict == Verdict(BadRowCounts(10, skipped=2), letters([]), None)
    others = "other:payments/3:1004 pay:payments/2:1004"
    assert "offset 1004" in str(judged(FAIL, [4], skip=others).failure)


def test_dropped_ones_are_counted_and_letters_are_handed_on() -> None:
    verdict = judged(DROP, [4, 7])
    assert verdict == Verdict(BadRowCounts(10, dropped=2, bad_in_block=2), letters([]), None)
    verdict = judged(LETTERS, [4, 7], skip="pay:payments/3:1004")
    counts = BadRowCounts(10, letters=1, skipped=1, bad_in_block=1)
    assert (verdict.counts, verdict.failure) == (counts, None)
    assert verdict.letters.column("position").to_pylist() == [1007]


@pytest.mark.parametrize("policy", [FAIL, DROP, LETTERS])
def test_without_letters_there_is_nothing_to_judge(policy: BadRowPolicy) -> None:
    assert judged(policy, []) == Verdict(BadRowCounts(10), letters([]), None)


@pytest.mark.parametrize("on_bad_row", ["drop", "letters"])
def test_one_more_than_the_share_stops_the_job(on_bad_row: OnBadRow) -> None:
    policy = BadRowPolicy(on_bad_row, "20%", window=10)
    assert judged(policy, [0, 9, 10, 19], 20).failure is None
    failure = judged(policy, [0, 9, 11, 15, 19], 20).failure
    assert failure.code is ErrorCode.TOO_MANY_BAD_ROWS
    assert str(failure) == (
        "more than 20% of 10 messages are bad; the last was pay, split payments/3, offset 1019: "
        "not JSON: 19 (malformed)"
    )


def test_a_share_of_nothing_allows_nothing_and_the_whole_allows_everything() -> None:
    assert judged(BadRowPolicy("drop", "0%"), [0]).failure is not None
    assert judged(BadRowPolicy("drop", "0.009%"), [0]).failure is not None
    assert judged(BadRowPolicy("drop", "0.01%"), [0]).failure is None
    assert judged(BadRowPolicy("drop", "100%", window=1), [*range(10)]).failure is None


def verdict_in_batches(policy: BadRowPolicy, bad: list[bool], cuts: list[int]) -> object:
    """Judge messages in batches that end at ``cuts``; return counts, letters, and the failure."""
    rows, counts, handed_on = BadRows("pay", policy), BadRowCounts(), []
    ends = sorted({*(cut for cut in cuts if 0 < cut < len(bad)), len(bad)})
    for start, end in zip([0, *ends], ends, strict=False):
        found = [n for n in range(end - start) if bad[start + n]]
        verdict = rows.judge(counts, SPLIT, letters(found, start), end - start)
        if verdict.failure:
            position = str(verdict.failure).partition("offset ")[2].partition(":")[0]
            return f"stopped at {position}"
        counts = verdict.counts
        handed_on += verdict.letters.column("position").to_pylist()
    return counts, handed_on


@given(
    st.lists(st.booleans(), max_size=40),
    st.lists(st.integers(0, 40)),
    st.sampled_from(["fail", "drop", "letters"]),
    st.sampled_from(["0%", "25%", "50%", "75%"]),
    st.integers(1, 12),
)
def test_the_verdict_does_not_depend_on_how_messages_are_cut_into_batches(
    bad: list[bool], cuts: list[int], on_bad_row: OnBadRow, share_max: str, window: int
) -> None:
    policy = BadRowPolicy(on_bad_row, share_max, window)
    in_batches = verdict_in_batches(policy, bad, cuts)
    assert in_batches == verdict_in_batches(policy, bad, [])
    assert in_batches == verdict_in_batches(policy, bad, [*range(len(bad))])


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 12))
def test_a_job_stops_where_a_block_has_too_many(bad: list[bool], window: int) -> None:
    policy = BadRowPolicy("drop", "50%", window)
    too_many = [
        n for n in range(len(bad)) if bad[n] and sum(bad[n - n % window : n + 1]) > policy.bad_max
    ]
    found = verdict_in_batches(policy, bad, [3, 17])
    if too_many:
        assert found == f"stopped at {too_many[0]}"
    else:
        assert found[0].dropped == sum(bad)


@pytest.mark.parametrize("text", ["", "pay", "pay:3", "pay::3", ":split:3", "pay:split:"])
def test_what_names_no_message_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write source:split:offset") as caught:
        SkippedMessage.parse(text)
    assert caught.value.code is ErrorCode.INVALID_OPTION


def test_a_split_may_have_colons_and_spaces_in_its_name() -> None:
    skipped = SkippedMessage("in", "day=1/a b:c.json", "77")
    assert SkippedMessage.parse(str(skipped)) == skipped


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="1 percent"):
        BadRowPolicy("drop", "1 percent")
    with pytest.raises(ConfigurationError, match="at least one message"):
        replace(DROP, window=0)
