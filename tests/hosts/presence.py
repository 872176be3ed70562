"""Whether tests over hosts run, are skipped, or fail because something is missing."""

import os
from typing import Literal, NoReturn

import pytest

from verification.hosts.needs import missing

VARIABLE = "LAMINAR_HOSTS"
REQUIRED = "required"
Verdict = Literal["run", "skip", "fail"]


def verdict(demand: str | None, why: str | None, *, takes_minutes: bool) -> tuple[Verdict, str]:
    """Return what becomes of a test, and the reason.

    A cluster takes minutes, so its tests run only on demand. Tests of the hosts themselves run
    wherever hosts can be made. Where they are required, nothing is skipped.
    """
    if why is not None:
        return ("fail" if demand == REQUIRED else "skip"), f"no hosts: {why}"
    if takes_minutes and demand is None:
        return "skip", "takes minutes: `make hosts` runs it"
    return "run", ""


def require_hosts(*, takes_minutes: bool) -> None:
    """Return if the test is to run; else skip it, or fail it where hosts are required."""
    found, why = verdict(os.environ.get(VARIABLE), missing(), takes_minutes=takes_minutes)
    if found == "fail":
        pytest.fail(why)
    if found == "skip":
        pytest.skip(why)


def absent(name: str) -> NoReturn:
    """Fail or skip a test that needs a program besides hosts."""
    if os.environ.get(VARIABLE) == REQUIRED:
        pytest.fail(name)
    pytest.skip(name)
