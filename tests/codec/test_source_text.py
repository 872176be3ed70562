"""The text of what runs, whatever has become of its file."""

import functools
from pathlib import Path

import pytest

from laminar_core.codec.source_text import source_text
from tests.codec.edited_program import CLASS, FUNCTION, change, loaded, written


def test_it_stays_what_it_was_when_it_was_first_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    old = loaded(file, monkeypatch)
    texts = [source_text(thing) for thing in (old.Fee, old.Fee.add, old.keep)]
    assert (texts[0], texts[2]) == (CLASS, FUNCTION)
    change(file)
    assert [source_text(thing) for thing in (old.Fee, old.Fee.add, old.keep)] == texts
    assert source_text(old.Fee().add) == texts[1]
    new = loaded(file, monkeypatch)
    assert source_text(new.keep) == "def keep(batch):\n    return batch.slice(1)\n"


def test_a_decorated_function_has_the_text_of_what_was_decorated() -> None:
    def plain(number: int) -> int:
        return number

    @functools.wraps(plain)
    def around(number: int) -> int:
        return plain(number)

    assert source_text(around) == source_text(functools.cache(plain)) == source_text(plain)
    assert "return number" in str(source_text(plain))


def test_what_python_has_no_text_of_has_none() -> None:
    assert [source_text(thing) for thing in (len, int, functools.partial(int), 3)] == [None] * 4
