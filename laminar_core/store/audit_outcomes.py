"""Outcomes of acts that the audit log announces, derived from later records and created objects.

A claim, a restore and the end of a generation are announced before they take effect, and each of
them creates an object that proves it. So their outcome needs no record of its own, and the logs of
earlier versions have it as well.
"""

from collections.abc import Iterable, Mapping

from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.records.audit import AuditRecord, Outcome
from laminar_core.records.paths import JobPaths
from laminar_core.store.generation_summary import GenerationSummary, read_generation

_CLAIMS = ("claim", "take-over")
_STARTS = ("restore", "start-fresh")


def read_outcomes(
    objects: ObjectStore, paths: JobPaths, records: Iterable[AuditRecord], shown: Iterable[int]
) -> dict[int, Outcome]:
    """Return the outcomes of the acts with the numbers ``shown``.

    ``records`` is the whole log. Costs four requests for each generation that one of the acts
    concerns.
    """
    numbers, every = set(shown), list(records)
    concerned = {generation_of(record) for record in every if record.number in numbers} - {None}
    facts = {n: read_generation(objects, paths, Generation(n)) for n in concerned if n is not None}
    found = outcomes(every, facts)
    return {number: found[number] for number in numbers if number in found}


def generation_of(record: AuditRecord) -> int | None:
    """Return the generation whose objects prove the record's outcome; None if there is none."""
    generation = (record.after or {}).get("generation")
    is_shown = record.action in (*_CLAIMS, *_STARTS, "end") and record.outcome == "intended"
    return generation if is_shown and isinstance(generation, int) and generation > 0 else None


def outcomes(
    records: Iterable[AuditRecord], facts: Mapping[int, GenerationSummary]
) -> dict[int, Outcome]:
    """Return per record what became of its act; ``intended``: that is not known."""
    found: dict[int, Outcome] = {}
    for record in records:
        generation = generation_of(record)
        known = None if generation is None else facts.get(generation)
        found[record.number] = record.outcome if known is None else _outcome(record, known)
        if record.intent is not None and record.intent in found:
            found[record.intent] = record.outcome
    return found


def _outcome(record: AuditRecord, known: GenerationSummary) -> Outcome:
    if record.action in _CLAIMS:
        if known.claim is None or known.claim.announced is None:
            return "intended"
        return "done" if known.claim.announced.number == record.number else "failed"
    if record.action in _STARTS:
        if known.base is None:
            return "intended"
        wanted = (record.after or {}).get("checkpoint_id")
        is_ours = known.base.closed_by is None and known.base.base_checkpoint_id == wanted
        return "done" if is_ours else "failed"
    return "intended" if known.end is None else "done"
