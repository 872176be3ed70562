"""The source text of users' code, as it was when this process first read it.

Python reads a source file anew once the file has changed. A job runs the code that it has loaded,
perhaps for weeks, and a standby runs it after it has waited as long. A text that was read then
would belong to other code.
"""

import inspect
import weakref
from collections.abc import Callable
from tokenize import TokenError
from types import CodeType, FunctionType, MethodType
from typing import NamedTuple, cast


class _Known(NamedTuple):
    whose: "weakref.ref[CodeType | type]"
    text: str


_KNOWN: dict[int, _Known] = {}
"""By identity: classes can be equal or have no hash, and equal code can come from two files."""


def source_text(thing: object) -> str | None:
    """Return the source of a function, a method or a class; None if there is none.

    Of a decorated function it is the source of what was decorated, if the decorator says what.
    """
    try:
        thing = inspect.unwrap(cast("Callable[..., object]", thing))
    except ValueError:  # It wraps itself.
        return None
    if isinstance(thing, MethodType):
        thing = thing.__func__
    if isinstance(thing, FunctionType):
        # A function that is made anew at each call of another one has the same code.
        return _remembered(thing.__code__, thing)
    return _remembered(thing, thing) if isinstance(thing, type) else None


def _remembered(key: CodeType | type, thing: FunctionType | type) -> str | None:
    number = id(key)
    known = _KNOWN.get(number)
    if known is not None and known.whose() is key:
        return known.text
    text = _read(thing)
    if text is not None:  # Else it may be there the next time.
        _KNOWN[number] = _Known(weakref.ref(key, lambda _: _KNOWN.pop(number, None)), text)
    return text


def _read(thing: FunctionType | type) -> str | None:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError, SyntaxError, TokenError):  # There is none, or the file has changed.
        return None
