"""Bad rows: stop the job, drop them, or keep them as letters, up to a share of all messages.

The decision is pure: counts and letters in, counts and a verdict out. It depends on the messages
and their order, and not on how they were cut into batches.

The share is taken over blocks of ``window`` messages that one reader decoded, one after another.
So a job of years cannot save up room for a day of nothing but bad rows, and the first message may
be bad without being 100 %. A restart begins a new block.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, Self

import numpy as np
import pyarrow as pa

from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.units import share

OnBadRow = Literal["fail", "drop", "letters"]

WINDOW_MESSAGES = 10_000

_SKIPPED = re.compile(r"(?P<source>[^:]+):(?P<split>.+):(?P<position>[^:]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SkippedMessage:
    """One message that a person decided to leave out: ``--skip-bad source:split:offset``."""

    source: str
    split: str
    position: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``source:split:offset``; a split may hold colons, the other two may not.

        >>> SkippedMessage.parse("payments:payments/3:1287")
        SkippedMessage(source='payments', split='payments/3', position='1287')

        Raises:
            ConfigurationError: a part is missing (INVALID_OPTION).
        """
        match = _SKIPPED.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{text!r} names no message: write source:split:offset, as in in:payments/3:1287",
            )
        return cls(**match.groupdict())

    def __str__(self) -> str:
        return f"{self.source}:{self.split}:{self.position}"


@dataclass(frozen=True, slots=True)
class BadRowPolicy:
    """Stop, drop or keep: the policy for messages that are no rows.

    Args:
        on_bad_row: ``fail`` stops the job at the first one. ``drop`` counts them. ``letters`` hands
            them on, with the same guarantee as the rows.
        share_max: how many of ``window`` messages in a row may be dropped or become letters, as in
            ``1%``; one more stops the job. ``100%`` never does.
        window: messages that the share is of.

    Raises:
        ConfigurationError: the share is none, or the window is not positive (INVALID_OPTION).
    """

    on_bad_row: OnBadRow = "fail"
    share_max: str = "1%"
    window: int = WINDOW_MESSAGES

    def __post_init__(self) -> None:
        share(self.share_max)
        if self.window < 1:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"a window has at least one message, not {self.window}"
            )

    @property
    def drops(self) -> bool:
        """Whether bad rows may be lost."""
        return self.on_bad_row == "drop"

    @property
    def bad_max(self) -> int:
        """How many messages of a window may be bad."""
        return int(Fraction(self.window) * share(self.share_max))


@dataclass(frozen=True, slots=True)
class BadRowCounts:
    """Messages that one reader has met since it was opened."""

    messages: int = 0
    letters: int = 0
    dropped: int = 0
    skipped: int = 0
    bad_in_block: int = 0
    """Bad messages of the block that ``messages`` ends in."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement on the letters of one batch."""

    counts: BadRowCounts
    letters: pa.RecordBatch
    """Those to hand on: the columns of ``letters_schema``, possibly no rows."""
    failure: DataError | None
    """Why the job must stop; nothing of this batch may be emitted then."""


class BadRows:
    """Judges the letters of one source, one batch after another.

    ``skip`` may name messages of other sources; they do not count here.
    """

    def __init__(
        self, source: str, policy: BadRowPolicy, skip: Iterable[SkippedMessage] = ()
    ) -> None:
        self._source = source
        self._policy = policy
        self._skip = {(s.split, s.position) for s in skip if s.source == source}

    def judge(
        self, counts: BadRowCounts, split: str, letters: pa.RecordBatch, messages: int
    ) -> Verdict:
        """Judge the ``letters`` of a batch of so many ``messages`` of one split."""
        kept = self._without_skipped(split, letters)
        skipped = counts.skipped + letters.num_rows - kept.num_rows
        policy, bad = self._policy, kept.num_rows
        failing, bad_in_block = self._blocks(counts, np.asarray(kept.column("index")), messages)
        after = BadRowCounts(
            messages=counts.messages + messages,
            letters=counts.letters + (bad if policy.on_bad_row == "letters" else 0),
            dropped=counts.dropped + (bad if policy.on_bad_row == "drop" else 0),
            skipped=skipped,
            bad_in_block=bad_in_block,
        )
        failure = None if failing is None else self._failure(split, kept.slice(failing, 1))
        handed_on = kept if policy.on_bad_row == "letters" and failure is None else kept.slice(0, 0)
        return Verdict(after, handed_on, failure)

    def passed(self, counts: BadRowCounts, messages: int) -> BadRowCounts:
        """Return the counts after so many good messages: what ``judge`` says without letters."""
        after, window = counts.messages + messages, self._policy.window
        same_block = after // window == counts.messages // window
        bad = counts.bad_in_block if same_block else 0
        return replace(counts, messages=after, bad_in_block=bad)

    def _without_skipped(self, split: str, letters: pa.RecordBatch) -> pa.RecordBatch:
        if not self._skip or not letters.num_rows:
            return letters
        positions = map(str, letters.column("position").to_pylist())
        kept = [(split, position) not in self._skip for position in positions]
        return letters.filter(pa.array(kept, pa.bool_()))

    def _blocks(
        self, counts: BadRowCounts, indexes: np.ndarray, messages: int
    ) -> tuple[int | None, int]:
        """Return the first letter that is one too many, and the bad ones of the last block."""
        window, bad_max = self._policy.window, self._policy.bad_max
        block_before, block_after = (
            counts.messages // window,
            (counts.messages + messages) // window,
        )
        blocks = (indexes + counts.messages) // window
        bad = counts.bad_in_block
        for at, block in enumerate(blocks):
            is_first = block != (blocks[at - 1] if at else block_before)
            bad = 1 if is_first else bad + 1
            if self._policy.on_bad_row == "fail" or bad > bad_max:
                return at, bad
        ended = block_after != (blocks[-1] if len(blocks) else block_before)
        return None, 0 if ended else bad

    def _failure(self, split: str, letter: pa.RecordBatch) -> DataError:
        (first,) = letter.to_pylist()
        where = f"{self._source}, split {split}, offset {first['position']}"
        what = f"{where}: {first['reason']} ({first['defect']})"
        if self._policy.on_bad_row == "fail":
            skip = SkippedMessage(self._source, split, str(first["position"]))
            remedy = (
                f"leave out this message with --skip-bad {skip}, or keep such messages with "
                "on_bad_row=LettersTo(...)"
            )
            return DataError(ErrorCode.BAD_ROW, f"{what}; {remedy}")
        limit = f"more than {self._policy.share_max} of {self._policy.window} messages are bad"
        return DataError(ErrorCode.TOO_MANY_BAD_ROWS, f"{limit}; the last was {what}")
