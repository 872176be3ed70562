"""The marker of a sink in Kafka: a group offset that is committed together with the rows.

The group is ``laminar.{job}.{sink}``, and the offset of partition 0 of the output topic is the
newest checkpoint that was published. Its metadata tell which run of the job wrote it: a job that
was removed and made anew begins with checkpoint 1 again, and must not believe an old marker.
"""

import json
from dataclasses import dataclass

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation


@dataclass(frozen=True, slots=True)
class Marker:
    """The newest published checkpoint, and who published it. Checkpoint 0: none so far."""

    checkpoint_id: CheckpointId
    generation: Generation
    messages: int
    """Messages of its transaction."""
    run_id: str
    committing_id: CheckpointId = NO_CHECKPOINT
    """Readers may see a part of the output up to this checkpoint; 0: of none after the marker."""

    def metadata(self) -> str:
        """Return the text beside the offset."""
        known = {"generation": self.generation, "messages": self.messages, "run": self.run_id}
        if self.committing_id:
            known["committing"] = self.committing_id
        return json.dumps(known)

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> "Marker | None":
        """Read a group offset; None if there is none.

        Metadata that Laminar did not write make a marker of no run.
        """
        if offset < 0:
            return None
        try:
            found = json.loads(metadata or "")
            generation, messages = int(found["generation"]), int(found["messages"])
            run, committing = str(found["run"]), int(found.get("committing", 0))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            generation, messages, run, committing = 0, 0, "", 0
        return cls(
            CheckpointId(offset), Generation(generation), messages, run, CheckpointId(committing)
        )


def require_own(marker: Marker | None, run_id: str | None, group: str) -> Marker | None:
    """Return the marker if this run of the job wrote it, or if there is none.

    Raises:
        ConfigurationError: it is of another run; the message names the group to delete.
    """
    if marker is not None and marker.run_id != run_id:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the consumer group {group} says that checkpoint {marker.checkpoint_id} of another "
            "run is published: give the job or the sink another name; or, if that output does not "
            f"matter, delete the group (kafka-consumer-groups --delete --group {group})",
        )
    return marker
