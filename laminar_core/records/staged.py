"""Committables that name a file in a sink's staging area, and the names of such files."""

import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from laminar_core.protocol.types import Generation
from laminar_core.records.paths import used_number
from laminar_core.records.record import FileRef, JsonValue

STAGED_FILE = "staged_file"
"""The member of a committable with the reference to its file."""

_STAGED = re.compile(r"(?:.*/)?([0-9]{10})-[0-9]+-[0-9]{8,}\.[a-z]+")


def staged_generation(key: str) -> Generation | None:
    """Return the generation that staged the file at ``key``; None: it is no such name.

    >>> staged_generation("payments/staged/out/0000000003-0-00000017.arrow")
    3
    """
    match = _STAGED.fullmatch(key)
    number = used_number(match[1]) if match else None
    return None if number is None else Generation(number)


def staged_files(committables: Iterable[Mapping[str, JsonValue]]) -> list[FileRef]:
    """Return the files that committables name, each once; other members do not matter."""
    found: dict[str, FileRef] = {}
    for committable in committables:
        value = committable.get(STAGED_FILE)
        if isinstance(value, dict):
            try:
                file = FileRef.model_validate(value)
            except ValidationError:
                continue  # The sink's own outlook reports what is wrong with it.
            found[file.path] = file
    return list(found.values())
