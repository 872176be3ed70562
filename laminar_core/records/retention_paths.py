"""Names of retention's objects, and the classification of stored names.

Continues ``paths``, which builds the names of checkpoints.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.paths import NAME_LENGTH_MAX, JobPaths, is_part_name, padded, used_number
from laminar_core.records.staged import staged_generation

StoredKind = Literal["part", "shared", "staged", "record", "unknown"]
Step = Literal["plan", "decision", "result"]

_STEP = re.compile(r"([0-9]{10})\.(plan|decision|result)\.json")
_PIN = re.compile(r"([0-9]{10})-([A-Za-z0-9_-]+)\.json")
_PIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_IN_A_CHECKPOINT = re.compile(r"([0-9]{10})/(.+)")
_SHARED = re.compile(r"[A-Za-z0-9_-]+/([0-9]{10})-[0-9]+-[0-9]{8,}\.seg")
_RECORDS_OF_A_CHECKPOINT = {"trigger.json", "manifest.json", "deletion.json"}


@dataclass(frozen=True, slots=True)
class StoredName:
    """The kind of an object below ``checkpoints/``, ``shared/`` or ``staged/``."""

    kind: StoredKind
    checkpoint_id: CheckpointId | None = None
    generation: Generation | None = None


def check_pin_name(name: str) -> str:
    """Return ``name`` if it can name a pin.

    Raises:
        ConfigurationError: empty, too long, or with a character that stores treat differently.
    """
    if len(name) > NAME_LENGTH_MAX or not _PIN_NAME.fullmatch(name):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{name!r} names no pin: use 1 to {NAME_LENGTH_MAX} letters, digits, '-' and '_'",
        )
    return name


@dataclass(frozen=True, slots=True)
class RetentionPaths:
    """Keys of one job's retention: plans, quarantine, pins, markers.

    >>> RetentionPaths(JobPaths("payments")).plan(3)
    'payments/retention/0000000003.plan.json'
    """

    paths: JobPaths

    @property
    def retention(self) -> str:
        """Folder of plans, their decisions and results, and the quarantine."""
        return f"{self.paths.job}/retention/"

    @property
    def quarantine(self) -> str:
        """Folder with one record per left-over file that was found."""
        return f"{self.retention}quarantine/"

    def reserve(self, number: int) -> str:
        """Key of one slice of reserved space, deleted when the store is full."""
        return f"{self.retention}reserve/{number}"

    @property
    def pins(self) -> str:
        """Folder with one record per pin or hold."""
        return f"{self.paths.job}/pins/"

    def plan(self, number: int) -> str:
        """Key of a plan; create-only."""
        return self._step(number, "plan")

    def decision(self, number: int) -> str:
        """Key of the decision on a plan; create-only, so the first decision stands."""
        return self._step(number, "decision")

    def result(self, number: int) -> str:
        """Key of the result of a plan; create-only."""
        return self._step(number, "result")

    def quarantined(self, path: str) -> str:
        """Key of the record that the file at ``path`` was found to be left over; create-only."""
        return f"{self.quarantine}{path}.json"

    def pin(self, checkpoint_id: CheckpointId, name: str) -> str:
        """Key of a pin or hold."""
        return f"{self.pins}{padded(checkpoint_id)}-{check_pin_name(name)}.json"

    def step_of(self, name: str) -> tuple[int, Step] | None:
        """Return number and step for a name in the folder ``retention``; None for any other."""
        match = _STEP.fullmatch(name)
        number = used_number(match[1]) if match else None
        if match is None or number is None:
            return None
        step: Step = "plan" if match[2] == "plan" else _later_step(match[2])
        return number, step

    def pin_of(self, name: str) -> tuple[CheckpointId, str] | None:
        """Return checkpoint and pin for a name in the folder ``pins``; None for any other."""
        match = _PIN.fullmatch(name)
        number = used_number(match[1]) if match else None
        return None if match is None or number is None else (CheckpointId(number), match[2])

    def path_in_quarantine(self, key: str) -> str:
        """Turn the key of a quarantine record into the path of the file that it is about."""
        return key.removeprefix(self.quarantine).removesuffix(".json")

    def classify(self, key: str) -> StoredName:
        """Classify the object at a key below ``checkpoints/``, ``shared/`` or ``staged/``."""
        if key.startswith(checkpoints := self.paths.checkpoints):  # First: most keys.
            return _in_a_checkpoint(key.removeprefix(checkpoints))
        if key.startswith(self.paths.staged):
            staged_by = staged_generation(key.removeprefix(self.paths.staged))
            if staged_by is None:
                return StoredName("unknown")
            return StoredName("staged", generation=staged_by)
        match = _SHARED.fullmatch(key.removeprefix(self.paths.shared))
        generation = used_number(match[1]) if match else None
        if generation is None:
            return StoredName("unknown")
        return StoredName("shared", generation=Generation(generation))

    def _step(self, number: int, step: Step) -> str:
        return f"{self.retention}{padded(number)}.{step}.json"


def _in_a_checkpoint(name: str) -> StoredName:
    match = _IN_A_CHECKPOINT.fullmatch(name)
    number = used_number(match[1]) if match else None
    if match is None or number is None:
        return StoredName("unknown")
    return StoredName(_kind_in_a_checkpoint(match[2]), CheckpointId(number))


@lru_cache(maxsize=1_024)  # Checkpoints of one pipeline have files of the same names.
def _kind_in_a_checkpoint(name: str) -> StoredKind:
    if name in _RECORDS_OF_A_CHECKPOINT:
        return "record"
    return "part" if is_part_name(name) else "unknown"


def _later_step(text: str) -> Step:
    return "decision" if text == "decision" else "result"
