"""Whatever an object graph holds is saved as a value, and comes back."""

from collections import deque
from dataclasses import dataclass

import pytest

from laminar_core.protocol.types import Batch, ChannelId
from laminar_core.worker.channels import InputChannel
from verification.explorer.memento import Memento
from verification.explorer.records import Record, batch_of


class Inner(InputChannel):
    """Ours, because its base is."""

    noted: int = 0

    def __init__(self) -> None:
        super().__init__(ChannelId(0), lambda _: None)
        self.seen: dict[str, set[int]] = {}


@dataclass(frozen=True)
class Constants:
    inner: Inner
    name: str = "x"


class Outer(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.parts = Constants(Inner())
        self.waiting: deque[object] = deque()


def test_what_changed_comes_back() -> None:
    outer = Outer()
    memento = Memento(outer)
    before = memento.save()
    inner = outer.parts.inner
    inner.arrive(Batch(batch_of(Record("a", 1))))
    inner.seen["k"] = {2, 1}
    inner.noted = 7
    outer.waiting.append(("pair", None))
    after = memento.save()
    assert hash(after) != hash(before)
    memento.load(before)
    assert (len(inner), inner.seen, inner.noted, outer.waiting) == (0, {}, 0, deque())
    assert memento.save() == before
    memento.load(after)
    assert inner.take() == Batch(batch_of(Record("a", 1)))
    assert (inner.seen, inner.noted) == ({"k": {1, 2}}, 7)


def test_a_value_that_was_loaded_is_not_shared() -> None:
    outer = Outer()
    memento = Memento(outer)
    saved = memento.save()
    memento.load(saved)
    outer.waiting.append(1)
    memento.load(saved)
    assert outer.waiting == deque()


def test_a_state_fits_other_objects_of_the_same_structure() -> None:
    first, second = Outer(), Outer()
    first.parts.inner.noted = 3
    assert Memento(first).save() != Memento(second).save()
    Memento(second).load(Memento(first).save())
    assert second.parts.inner.noted == 3


def test_structure_is_left_alone_and_state_is_named() -> None:
    described = Memento(Outer()).describe()
    assert "Outer.parts" not in described
    assert "Outer._grant" not in described
    assert {"Outer.waiting", "Inner.seen", "Inner.noted", "Inner._queue"} <= set(described)


def test_an_object_that_takes_the_place_of_a_value_is_noticed() -> None:
    outer = Outer()
    memento = Memento(outer)
    vars(outer)["noted"] = Inner()
    with pytest.raises(AssertionError, match="became a Inner"):
        memento.save()
