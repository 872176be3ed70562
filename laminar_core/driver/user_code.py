"""The version of the user's code: a digest of the code that a pipeline uses from outside Laminar.

The audit log keeps it with each claim, so that it shows which code a generation ran, and whether a
restart ran other code than the run before.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import cast

from laminar_core.codec.code_digest import code_digest
from laminar_core.plan.plan import Plan

_NOT_THEIRS = ("builtins", "datetime", "laminar_core", "numpy", "pyarrow")


def user_code_sha256(plan: Plan) -> str | None:
    """Return the digest of all functions, classes and objects of users in a pipeline.

    None: there are none, or one cannot be digested; a digest is no reason to refuse a job.
    """
    try:
        found = {
            operator_id: [code_digest(thing) for thing in _theirs(member)]
            for vertex in plan.vertices
            for operator_id, member in vertex.members()
        }
    except Exception:  # noqa: BLE001 - anything may hang on a user's object
        return None
    theirs = {operator_id: digests for operator_id, digests in found.items() if digests}
    if not theirs:
        return None
    return hashlib.sha256(json.dumps(theirs, sort_keys=True).encode()).hexdigest()


def _theirs(thing: object) -> Iterator[object]:
    """Yield what is not Laminar's, however deep Laminar's own objects hold it.

    Of an object of the user, its class: what it holds may be large, and is no code.
    """
    if isinstance(thing, list | tuple):
        for item in cast("Sequence[object]", thing):
            yield from _theirs(item)
    elif isinstance(thing, Mapping):
        for item in cast("Mapping[object, object]", thing).values():
            yield from _theirs(item)
    elif not _is_ours(thing):
        yield thing if callable(thing) else type(thing)
    elif is_dataclass(thing) and not isinstance(thing, type) and _is_frozen(thing):
        for field in fields(thing):
            yield from _theirs(getattr(thing, field.name))


def _is_ours(thing: object) -> bool:
    """Whether a function, a class, or an object's class comes with Laminar or its libraries."""
    home = thing if hasattr(thing, "__qualname__") else type(thing)
    module = str(getattr(home, "__module__", None) or "builtins")
    # The sample jobs are programs of users: they are there to be copied.
    return module.partition(".")[0] in _NOT_THEIRS and not module.startswith("laminar_core.jobs.")


def _is_frozen(thing: object) -> bool:
    """Return whether a dataclass is frozen, as every specification in a plan is.

    A mutable one, like the ledger behind a sink of the tests, is data that the job reads or writes.
    """
    return bool(type(thing).__dataclass_params__.frozen)  # type: ignore[attr-defined] - a dataclass has them
