"""Make exactly the output up to the restored checkpoint visible, before a generation runs.

Source: PROTOCOL sections 7 and 11. If a checkpoint is restored, all workers have verified it by
then. A worker that finds damage makes the next generation restore an older checkpoint, and that one
commits, withdraws and discards other output.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from laminar_core.connectors.base import Committer, Withdrawing
from laminar_core.driver.commits import commit_output, fenced_by_its_target
from laminar_core.driver.publication import LeftOut
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.staging import StagingArea


@dataclass(frozen=True, slots=True)
class OutputToSettle:
    """The output that readers see when a generation begins; all other output goes."""

    base_id: CheckpointId = NO_CHECKPOINT
    """Output up to this checkpoint stays; ``NO_CHECKPOINT``: none."""
    redrive: Sequence[CheckpointManifest] = ()
    """Checkpoints whose output is committed again."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """Output of them that is not committed, because a person accepted that."""
    reset_sinks: Collection[str] = ()
    """Sinks all of whose output goes, because a part of the pipeline begins anew."""

    def settle(
        self,
        store: CheckpointStore,
        committers: Mapping[str, Committer],
        generation: Generation,
    ) -> None:
        """Commit, discard and withdraw. Repeating it is harmless.

        The withdrawal does not depend on what a sink has listed as committed: a driver that died in
        the midst of a commit may have made rows visible and listed none of them.

        Raises:
            FencedError: a newer generation owns the job.
            StorageUnavailable: the store or a sink did not answer; try again.
            CorruptCheckpointError: output that was to be committed is gone.
        """
        for manifest in self.redrive:
            commit_output(store, committers, manifest, generation, left_out=self.left_out)
        for operator_id, committer in committers.items():
            with fenced_by_its_target(store, operator_id, generation):
                self._discard(store, operator_id, committer, generation)

    def _discard(
        self,
        store: CheckpointStore,
        operator_id: str,
        committer: Committer,
        generation: Generation,
    ) -> None:
        committer.discard_uncommitted(generation)  # Who slept until now commits no more.
        # A generation that slept until here must not withdraw its successor's output.
        store.claims.check_owner(generation)
        StagingArea(store.objects, store.paths, operator_id).delete_before(generation)
        if isinstance(committer, Withdrawing):
            is_reset = operator_id in self.reset_sinks
            committer.withdraw_after(NO_CHECKPOINT if is_reset else self.base_id, generation)
