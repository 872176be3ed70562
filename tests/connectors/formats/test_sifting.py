"""Bisecting: each message is read or refused for what it is, with few reads."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats import sifting
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError, Messages
from laminar_core.connectors.formats.sifting import decode_rows

SCHEMA = pa.schema([("word", pa.binary())])


class Words:
    """A reader of words: each refuses ``?``, the readers ``!``, and only the first one ``+``."""

    schema = SCHEMA

    def __init__(self) -> None:
        self.reads: list[int] = []

    def suspects(self, values):
        return [n for n, value in enumerate(values.to_pylist()) if value.startswith(b"s")]

    def doubtful(self, values):
        """Suspect ``?``, which is refused, and ``~``, which can be read."""
        return [n for n, value in enumerate(values.to_pylist()) if set(value) & set(b"?~")]

    def examine(self, value):
        if b"?" in value:
            raise MessageRefusedError(Defect.MALFORMED, "a question")

    def read(self, values):
        self.reads.append(len(values))
        if any(mark in b"".join(values.to_pylist()) for mark in (b"?", b"!", b"+")):
            raise pa.ArrowInvalid("no words")
        return pa.record_batch([values], schema=SCHEMA)

    def read_one(self, value):
        self.examine(value)
        if b"!" in value:
            raise MessageRefusedError(Defect.WRONG_TYPE, "a cry")
        return pa.record_batch([pa.array([value])], schema=SCHEMA)


def messages(words: list[bytes | None]) -> Messages:
    return Messages(pa.array(words, pa.binary()), pa.array(range(len(words))))


@given(
    st.lists(
        st.none() | st.sampled_from([b"a", b"s", b"?", b"s?", b"!", b"+", b"~", b"~!", b"longer"])
    )
)
def test_each_message_is_judged_by_itself(words: list[bytes | None]) -> None:
    decoded = decode_rows(Words(), messages(words), 5)
    good = [n for n, w in enumerate(words) if w in (b"a", b"s", b"+", b"~")]
    assert decoded.origins.to_pylist() == good
    assert decoded.rows.column("word").to_pylist() == [words[n] for n in good]
    why = {None: "no-value", b"longer": "too-large", b"!": "wrong-type", b"~!": "wrong-type"}
    assert decoded.letters.column("defect").to_pylist() == [
        why.get(w, "malformed") for n, w in enumerate(words) if n not in good
    ]


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (1000 * [b"a"], 1),
        ([b"!", *(999 * [b"a"])], 2 * 9 + 1),
        ([b"?", *(999 * [b"a"])], 2),
        ([b"~!", *(999 * [b"a"])], 3),
        ([b"!", *(999 * [b"~"])], 999 + 2 * 9 + 1),
        ([b"s?", *(999 * [b"a"])], 1),
        (1000 * [b"?"], 1),
        ([b"?", *(4_999 * [b"a"])], 2 * 2 + 2),
        ([], 0),
    ],
)
def test_few_reads_find_the_bad_ones(words: list[bytes], reads: int) -> None:
    reader = Words()
    decode_rows(reader, messages(words), 100)
    assert len(reader.reads) == reads


def test_a_read_sees_no_more_bytes_than_the_bound_and_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sifting, "BATCH_BYTES_MAX", 10)
    reader = Words()
    words = [b"a", b"bbb", b"ccccc", None, b"d" * 35, b"e", b"", b"f" * 9]
    decoded = decode_rows(reader, messages(words), 40)
    assert decoded.rows.column("word").to_pylist() == [w for w in words if w is not None]
    assert reader.reads == [3, 3, 1]


def test_a_machine_without_memory_is_no_fault_of_a_message() -> None:
    class Exhausted(Words):
        def read(self, values):
            raise pa.lib.ArrowMemoryError(f"malloc for {len(values)} values failed")

    with pytest.raises(MemoryError):
        decode_rows(Exhausted(), messages([b"a"]), 100)


def test_large_binary_and_slices_are_read_as_well() -> None:
    values = pa.array([b"x", b"a", b"b", b"y"], pa.large_binary()).slice(1, 2)
    decoded = decode_rows(Words(), Messages(values, pa.array([5, 6])), 100)
    assert decoded.rows.column("word").to_pylist() == [b"a", b"b"]
