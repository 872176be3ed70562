"""The judgement of decoders: each kind of mistake is seen, and the decoders make none."""

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.messages import Decoded, Messages
from laminar_core.connectors.formats.raw import RawFormat
from verification.hostile_messages import TEXT, decoders, draw_batch, problem_of

VALUES = [b"a", b"\xff", None, b"b"]


class Wrong:
    """A decoder with one mistake."""

    schema = TEXT

    def __init__(self, mistake) -> None:
        self.inner = RawFormat().decoder(TEXT)
        self.mistake = mistake

    def decode(self, messages: Messages) -> Decoded:
        decoded = self.inner.decode(messages)
        return self.mistake(decoded) if len(messages.values) > 1 else decoded


def swapped(decoded: Decoded) -> Decoded:
    return replace(decoded, rows=decoded.rows.take(pa.array([1, 0])))


MISTAKES = {
    "order": lambda d: replace(d, origins=pa.array([3, 0])),
    "letter of another": lambda d: replace(d, letters=d.letters.slice(0, 1).take(pa.array([0, 0]))),
    "judged otherwise": lambda d: replace(d, letters=d.letters.slice(1)),
    "another row": swapped,
    "another schema": lambda d: replace(d, rows=d.rows.rename_columns(["x"])),
    "a row and a letter": lambda d: replace(d, origins=pa.array([0, 1])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_of_a_decoder_is_seen(mistake: str) -> None:
    assert problem_of(Wrong(lambda d: d), VALUES) is None
    assert problem_of(Wrong(MISTAKES[mistake]), VALUES) is not None


@pytest.mark.parametrize("name", decoders())
def test_messages_are_drawn_by_seed_and_some_are_rows(name: str) -> None:
    decoder, draw = decoders()[name]
    batches = [draw_batch(Random(seed), draw) for seed in range(20)]
    assert batches == [draw_batch(Random(seed), draw) for seed in range(20)]
    values = [value for batch in batches for value in batch]
    decoded = decoder.decode(Messages(pa.array(values, pa.binary()), pa.array(values)))
    assert decoded.rows.num_rows > 0
    assert decoded.letters.num_rows > 0
