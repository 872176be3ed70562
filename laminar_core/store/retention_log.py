"""Plans of retention, and the decisions whether they are carried out: one create-only object each.

Deletion and restore race: a driver chooses a checkpoint while it is being deleted. Neither can undo
its step, so one record decides. A plan names every checkpoint to delete. It is carried out only if
its *decision* permits it, and the first creator of the decision decides:

1. The deleter writes the plan, *then* reads owners and pins again, and only if none of them objects
   decides ``apply``.
2. A driver that has claimed the job decides ``abandon`` for every plan without a decision, *then*
   chooses its start among the checkpoints that no plan with decision ``apply`` names. A process
   that pins a checkpoint does the same after the pin is written.

Then no generation starts from a checkpoint that is deleted. Let plan *p* be decided ``apply``, and
let generation *g* have been claimed at any time. If *g* saw the plan in step 2, the decision was
there before *g* chose. If it did not, the plan was written after the claim, and step 1 found *g* as
the newest generation: either with a base, and what it started from is not in the plan, or without
one, and then the decision is not ``apply``. A generation that is not the newest is over.

``tests/retention/test_races.py`` goes through all interleavings of the two.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress

from laminar_core.errors import CorruptCheckpointError
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.paths import JobPaths
from laminar_core.records.retention import (
    DeletionMarker,
    RetentionDecision,
    RetentionPlanRecord,
    RetentionResult,
    S,
    parse_sealed,
)
from laminar_core.records.retention_paths import RetentionPaths, Step
from laminar_core.store.records import bytes_in, create_or_confirm

PLANS_REMEMBERED = 100
"""Number of finished plans that are kept; the audit log keeps them all."""


class RetentionLog:
    """The plans of one job. Safe to use from several threads and processes."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self.objects = objects
        self.paths = RetentionPaths(paths)

    # --- for those who count on a checkpoint ----------------------------------------------------

    def abandon_undecided(self, by: str, reason: str) -> list[int]:
        """Abandon every plan without a decision; return their numbers.

        Raises:
            StorageUnavailable: the store did not answer; call again.
        """
        numbers = [n for n, steps in self.steps().items() if steps == {"plan"}]
        return [n for n in numbers if self.decide(n, "abandon", by, reason).verdict == "abandon"]

    def being_deleted(self) -> frozenset[CheckpointId]:
        """Return the checkpoints with a decided but unfinished deletion.

        They must never be restored.
        """
        return frozenset(c for n in self.unfinished() for c in self._named_by(n))

    def marker(self, checkpoint_id: CheckpointId) -> DeletionMarker | None:
        """Return the deletion marker of a checkpoint; None if it was never marked.

        Raises:
            CorruptCheckpointError: there is a marker, and it is not what was written.
        """
        return self.read(DeletionMarker, self.paths.paths.deletion(checkpoint_id))

    # --- for those who delete -------------------------------------------------------------------

    def steps(self) -> dict[int, set[Step]]:
        """Return the recorded steps of each plan, by ascending number."""
        found: dict[int, set[Step]] = {}
        for name in self.objects.children(self.paths.retention):
            if (step := self.paths.step_of(name)) is not None:
                found.setdefault(step[0], set()).add(step[1])
        return dict(sorted(found.items()))

    def unfinished(self) -> Iterator[int]:
        """Yield the numbers of plans to be carried out that have no result, oldest first."""
        for number, steps in self.steps().items():
            if steps == {"plan", "decision"} and self._is_applied(number):
                yield number

    def decide(
        self,
        number: int,
        verdict: str,
        by: str,
        reason: str,
        checkpoint_ids: tuple[CheckpointId, ...] = (),
    ) -> RetentionDecision:
        """Record the decision on a plan; return the first one, which stands.

        Raises:
            CorruptCheckpointError: something was said and is not what was written.
            StorageUnavailable: the store did not answer; call again.
        """
        assert verdict in {"apply", "abandon"}, verdict
        said = RetentionDecision(
            number=number,
            verdict="apply" if verdict == "apply" else "abandon",
            by=by,
            reason=reason,
            checkpoint_ids=checkpoint_ids,
        )
        key = self.paths.decision(number)
        if create_or_confirm(self.objects, key, said.to_bytes()):
            return said
        stands = self.read(RetentionDecision, key)
        assert stands is not None, "a decision is not deleted before its plan"
        return stands

    def read_plan(self, number: int) -> RetentionPlanRecord | None:
        """Return the plan; None if it was removed.

        Raises:
            CorruptCheckpointError: it is not what was written.
        """
        return self.read(RetentionPlanRecord, self.paths.plan(number))

    def digest_of_plan(self, number: int) -> str | None:
        """Return the SHA-256 of the plan's stored bytes; None if it was removed."""
        data = bytes_in(self.objects, self.paths.plan(number))
        return None if data is None else hashlib.sha256(data).hexdigest()

    def read_result(self, number: int) -> RetentionResult | None:
        """Return the result; None if the plan is not finished.

        Raises:
            CorruptCheckpointError: it is not what was written.
        """
        return self.read(RetentionResult, self.paths.result(number))

    def create_plan(self, record: RetentionPlanRecord) -> bool:
        """Create a plan; False if its number is taken."""
        return create_or_confirm(self.objects, self.paths.plan(record.number), record.to_bytes())

    def record_result(self, result: RetentionResult) -> None:
        """Record that a plan is finished; the first record stands."""
        create_or_confirm(self.objects, self.paths.result(result.number), result.to_bytes())

    def forget_old(self) -> None:
        """Delete the records of old plans that are over; the plan first.

        A run of retention that slept since then finds no plan after it has decided, and stops.
        """
        over = [
            number
            for number, steps in self.steps().items()
            if "result" in steps or ("decision" in steps and not self._is_applied(number))
        ]
        for number in over[:-PLANS_REMEMBERED]:
            for key in (self.paths.plan, self.paths.decision, self.paths.result):
                self.objects.delete(key(number))

    def read(self, record_type: type[S], key: str) -> S | None:
        """Read any record of retention; None if there is none.

        Raises:
            CorruptCheckpointError: it is not what was written; the message names it.
        """
        try:
            data = self.objects.get(key)
            if data is None:
                return None
            return parse_sealed(record_type, data)
        except CorruptCheckpointError as error:
            where = address(self.objects, key)
            raise CorruptCheckpointError(error.code, f"{where}: {error}") from error

    def _is_applied(self, number: int) -> bool:
        """Whether the decision is to go on; one that cannot be read may have been."""
        try:
            decision = self.read(RetentionDecision, self.paths.decision(number))
        except CorruptCheckpointError:
            return True
        return decision is not None and decision.verdict == "apply"

    def _named_by(self, number: int) -> tuple[CheckpointId, ...]:
        """Return the checkpoints that a plan deletes, by its decision or else by the plan itself.

        If neither is readable, the markers of the checkpoints still protect them.
        """
        with suppress(CorruptCheckpointError):
            decision = self.read(RetentionDecision, self.paths.decision(number))
            return () if decision is None else decision.checkpoint_ids
        with suppress(CorruptCheckpointError):
            plan = self.read_plan(number)
            return () if plan is None else tuple(c.checkpoint_id for c in plan.checkpoints)
        return ()
