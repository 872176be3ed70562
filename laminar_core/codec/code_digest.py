"""A digest of users' code, so that other code does not continue its state unnoticed.

The digest covers the source, parsed and printed again without docstrings. So comments, layout and
the location of the file do not matter, and the digest is the same in every process. Python prints
the same text in all patch versions, and in minor versions except for new syntax. Where there is no
source (a lambda in the middle of an expression, a console), the instructions and constants of the
compiled code replace it; these are stable in patch versions only.

The digest includes everything that the code uses by name: functions, classes and constants of its
own module, values it closes over, defaults, and the attributes of the instance. Code of other
modules is not followed: declare a change of it by the ``version`` of the aggregate.
"""

import ast
import hashlib
import json
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, cast

from laminar_core.codec.source_text import source_text

_PLAIN = (str, int, float, bool, bytes, type(None))
_Facts = Mapping[str, object] | Sequence[object] | str


def code_digest(thing: object) -> str:
    """Return the SHA-256 of a function, a class, or an instance with its values; 64 hex digits."""
    said = json.dumps(_facts(thing, set()), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()


def _facts(thing: object, seen: set[int]) -> _Facts:
    if isinstance(thing, _PLAIN):
        return repr(thing)
    if isinstance(thing, Mapping):
        items = cast("Mapping[Any, Any]", thing).items()
        return sorted(json.dumps([_facts(k, seen), _facts(v, seen)]) for k, v in items)
    if isinstance(thing, list | tuple):
        return [_facts(item, seen) for item in cast("Sequence[Any]", thing)]
    if isinstance(thing, set | frozenset):
        return sorted(json.dumps(_facts(item, seen)) for item in cast("Collection[Any]", thing))
    if id(thing) in seen:
        return "seen"
    seen.add(id(thing))
    match thing:
        case FunctionType():
            return _function_facts(thing, seen)
        case MethodType():
            return [_facts(thing.__func__, seen), _facts(thing.__self__, seen)]
        case partial():
            return [
                _facts(thing.func, seen),
                _facts(thing.args, seen),
                _facts(thing.keywords, seen),
            ]
        case type():
            return _class_facts(thing, seen)
        case _:
            return _instance_facts(thing, seen)


def _instance_facts(thing: object, seen: set[int]) -> _Facts:
    if type(thing).__module__.partition(".")[0] in ("builtins", "numpy", "pyarrow"):
        return f"{type(thing).__qualname__} {thing}"
    return {"class": _facts(type(thing), seen), "holds": _facts(_attributes(thing), seen)}


def _attributes(thing: object) -> dict[str, object]:
    slots = [name for of in type(thing).__mro__ for name in getattr(of, "__slots__", ())]
    held = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
    return {**held, **getattr(thing, "__dict__", {})}


def _function_facts(function: FunctionType, seen: set[int]) -> _Facts:
    held = [_held(cell, seen) for cell in function.__closure__ or ()]
    return {
        "code": _source(function) or _compiled(function.__code__),
        "holds": held,
        "defaults": _facts([function.__defaults__, function.__kwdefaults__], seen),
        "uses": _used(function, seen),
    }


def _held(cell: CellType, seen: set[int]) -> _Facts:
    try:
        value = cell.cell_contents
    except ValueError:  # It is assigned after the function is made.
        return "nothing yet"
    return _facts(value, seen)


def _class_facts(of: type, seen: set[int]) -> _Facts:
    functions = [value for value in vars(of).values() if isinstance(value, FunctionType)]
    bases = [base for base in of.__bases__ if base.__module__ not in ("builtins", "typing")]
    source = _source(of)
    return {
        "code": source or {f.__name__: _facts(f, seen) for f in functions},
        "bases": [_facts(base, seen) for base in bases],
        "uses": [_used(function, seen) for function in functions] if source else [],
    }


def _used(function: FunctionType, seen: set[int]) -> dict[str, _Facts]:
    """Return the functions, classes and constants that the function uses from its module."""
    found: dict[str, _Facts] = {}
    for name in sorted(set(_names(function.__code__))):
        value = function.__globals__.get(name)
        own = getattr(value, "__module__", None) == function.__module__
        if (own and isinstance(value, FunctionType | type)) or (
            name in function.__globals__ and isinstance(value, (*_PLAIN, tuple, frozenset))
        ):
            found[name] = _facts(cast("object", value), seen)
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(thing: FunctionType | type) -> str | None:
    """Its source in normal form; None if there is none, or none that stands by itself."""
    if thing.__name__ == "<lambda>":
        return None  # What inspect finds is the line around it.
    text = source_text(thing)
    if text is None:
        return None
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _compiled(code: CodeType) -> _Facts:
    constants = [
        _compiled(constant) if isinstance(constant, CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]
