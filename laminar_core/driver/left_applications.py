"""Which Spark applications of dead drivers still hold resources of the cluster.

A standalone master gives the cores of an application free when its driver says goodbye or its
connection breaks. A driver whose host is gone does neither, so its successor would wait for the
cores of its own job.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.generation_summary import GenerationSummary

LOOKED_AT_MAX = 10
"""Number of generations to look at: a bound for a job whose drivers all died at their start."""


@dataclass(frozen=True, slots=True)
class LeftApplication:
    """An application whose driver never recorded an end, and the claim that names it."""

    generation: Generation
    application: SparkApplication
    owner: Owner


@dataclass(frozen=True, slots=True)
class ApplicationEnding:
    """The outcome of an attempt to end an application."""

    outcome: Literal["ended", "gone", "left"]
    """``gone``: it had ended before. ``left``: it may still be there."""
    reason: str = ""
    """Why it was left, and what to do; empty for the others."""


def left_applications(older: Iterable[GenerationSummary]) -> list[LeftApplication]:
    """Return the applications to end, as the claims of fenced generations name them.

    ``older`` are the generations below the one just claimed, newest first. A driver that recorded
    its end was alive then and ends its own application; it may also be a notebook whose session is
    used for something else. The search goes on behind a generation only if that one never started:
    its driver may have died before it came to this step. The caller's own application may be among
    them, if an earlier driver used the same session.
    """
    found: list[LeftApplication] = []
    for summary, _ in zip(older, range(LOOKED_AT_MAX), strict=False):
        if summary.end is not None:
            break
        claim = summary.claim
        if claim is not None and claim.spark not in (None, *(f.application for f in found)):
            assert claim.spark is not None
            found.append(LeftApplication(summary.generation, claim.spark, claim.owner))
        if summary.base is None or summary.base.closed_by is None:
            break
    return found
