"""The text of what runs, whatever has become of its file."""

import functools
import gc
from pathlib import Path

import pytest

from laminar_core.codec.source_text import _KNOWN, source_text
from tests.codec.edited_program import CLASS, FUNCTION, INNER, change, loaded, written


def test_it_stays_what_it_was_when_it_was_first_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    old = loaded(file, monkeypatch)
    texts = [source_text(thing) for thing in (old.Fee, old.Fee.add, old.keep)]
    assert (texts[0], texts[2]) == (CLASS, FUNCTION)
    assert str(texts[1]) in CLASS
    assert "def add" in str(texts[1])
    change(file)
    assert [source_text(thing) for thing in (old.Fee, old.Fee.add, old.keep)] == texts
    assert source_text(old.Fee().add) == texts[1]
    new = loaded(file, monkeypatch)
    assert source_text(new.keep) == "def keep(batch):\n    return batch.slice(1)\n"


def test_a_function_that_is_made_anew_has_the_text_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a program that builds its pipeline again after a failure."""
    file = written(tmp_path)
    program = loaded(file, monkeypatch)
    assert source_text(program.made()) == INNER
    change(file)
    assert source_text(program.made()) == INNER


class Named(type):
    """Its classes are equal to those of the same name, and have no hash."""

    def __eq__(cls, other: object) -> bool:
        return cls.__name__ == getattr(other, "__name__", None)

    __hash__ = None  # type: ignore[assignment] - on purpose


def test_classes_that_are_equal_have_texts_of_their_own() -> None:
    def low() -> Named:
        class Fee(metaclass=Named):
            rate = 1

        return Fee

    def high() -> Named:
        class Fee(metaclass=Named):
            rate = 2

        return Fee

    one, other = low(), high()
    assert one == other
    assert "rate = 1" in str(source_text(one))
    assert "rate = 2" in str(source_text(other))


def test_a_text_that_could_not_be_read_is_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    program = loaded(file, monkeypatch)
    away = file.rename(tmp_path / "away")
    assert source_text(program.keep) is None
    away.rename(file)
    assert source_text(program.keep) == FUNCTION


def test_what_is_gone_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = loaded(written(tmp_path), monkeypatch)
    assert source_text(program.keep)
    assert source_text(program.Fee)
    numbers = {id(program.keep.__code__), id(program.Fee)}
    assert numbers <= _KNOWN.keys()
    monkeypatch.undo()
    del program
    gc.collect()
    assert not numbers & _KNOWN.keys()


def test_a_decorated_function_has_the_text_of_what_was_decorated() -> None:
    def plain(number: int) -> int:
        return number

    @functools.wraps(plain)
    def around(number: int) -> int:
        return plain(number)

    assert source_text(around) == source_text(functools.cache(plain)) == source_text(plain)
    assert "return number" in str(source_text(plain))


def test_what_python_has_no_text_of_has_none() -> None:
    def around() -> None: ...

    around.__wrapped__ = around  # type: ignore[attr-defined] - on purpose
    without = (len, int, functools.partial(int), 3, around)
    assert [source_text(thing) for thing in without] == [None] * 5
