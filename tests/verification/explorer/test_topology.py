"""The answer of a world is computed without any channel."""

from verification.explorer.topology import Link
from verification.explorer.worlds import DIAMOND, FAN_IN, LOOP


def test_answers() -> None:
    assert FAN_IN.answer == {"a": {}, "b": {}, "j": {"a": 2, "b": 2}}
    assert DIAMOND.answer["k"] == {"am": 2, "an": 2}


def test_in_a_loop_every_record_goes_round_once_more() -> None:
    assert LOOP.answer["h"] == LOOP.answer["t"] == {"a": 2, "at": 2}


def test_channels_and_outputs_are_numbered_densely() -> None:
    assert [(c, n) for c, n, _ in LOOP.inputs_of("h")] == [(0, 0), (1, 3)]
    assert [n for n, _ in DIAMOND.outputs_of("a")] == [0, 1]


def test_what_was_sent_follows_from_what_was_processed() -> None:
    back = LOOP.links[3]
    assert LOOP.sent(back, {"a": 2, "at": 1}, None) == {"at": 2}
    assert LOOP.sent(Link("a", "h"), {}, 1) == {"a": 1}
    assert LOOP.sent(Link("a", "h"), {}, 0) == {}


def test_a_variant_changes_only_what_it_names() -> None:
    other = FAN_IN.variant("other", "", crashes=0)
    assert (other.name, other.crashes, other.links) == ("other", 0, FAN_IN.links)
