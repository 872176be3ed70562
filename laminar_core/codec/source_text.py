"""The source text of users' code, as it was when it was first asked for in this process.

Python reads a source file anew once the file has changed. A job runs the code that it has loaded,
perhaps for weeks, and a standby runs it after it has waited as long. A text that was read then
would belong to other code.
"""

import inspect
from collections.abc import Callable
from tokenize import TokenError
from types import FunctionType, MethodType
from typing import cast
from weakref import WeakKeyDictionary

_TEXTS: "WeakKeyDictionary[FunctionType | type, str | None]" = WeakKeyDictionary()


def source_text(thing: object) -> str | None:
    """Return the source of a function, a method or a class; None if there is none.

    Of a decorated function it is the source of what was decorated, if the decorator says what.
    """
    thing = inspect.unwrap(cast("Callable[..., object]", thing))
    if isinstance(thing, MethodType):
        thing = thing.__func__
    if not isinstance(thing, FunctionType | type):
        return None
    if thing not in _TEXTS:
        _TEXTS[thing] = _read(thing)
    return _TEXTS[thing]


def _read(thing: FunctionType | type) -> str | None:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError, SyntaxError, TokenError):  # None, or the file has changed already.
        return None
