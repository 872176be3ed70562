"""Options before the command's name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GlobalSettings:
    """The options of ``laminar`` itself; each command gets them."""

    debug: bool = False
