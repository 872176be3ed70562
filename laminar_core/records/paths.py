"""Every object name, built in one place; ``docs/formats.md`` shows the whole tree.

Numbers that order objects are padded to ten digits, so that the order of a listing is the order of
the numbers. Names inside a manifest are relative to the job's folder: a job can be copied to
another root as a whole.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.limits import NUMBER_MAX

NAME_LENGTH_MAX = 128
PART_LENGTH_MAX = 255
KEY_LENGTH_MAX = 900
"""S3 takes 1,024 bytes with the prefix of the store, file systems 255 for each part."""
PROBE_FOLDER = "_probe/"
"""Folder for trial writes. No job can have this name, because job names do not start with ``_``."""

Direction = Literal["input", "output"]
"""The side of a captured queue: the receiver's input, or the sender's output."""

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_OPERATOR_ID = re.compile(r"[A-Za-z0-9_-]+")
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_NUMBER = re.compile(r"([0-9]{10})(?:\.json|/)")
_GENERATION = re.compile(r"([0-9]{10})(?:\.[a-z]+)*\.json")
_PART = re.compile(
    r"operators/(?:inflight_[0-9]+(?:_[0-9]+)?\.buf|[A-Za-z0-9_-]+/"
    r"(?:state_[0-9]+(?:_[0-9]+)?\.(?:arrow|seg)|[0-9]+/(?:in|out)flight_[0-9]+\.buf))"
)
"""In-flight files of one queue, below the folder of an operator, are those of older versions."""


def check_job_name(name: str) -> str:
    """Return ``name`` if it can name a job.

    Raises:
        ConfigurationError: empty, too long, or with a character that file systems and object
            stores treat differently.
    """
    return _check_name("job name", name, _JOB_NAME)


def is_job_name(name: str) -> bool:
    """Return whether a folder with this name can belong to a job."""
    return len(name) <= NAME_LENGTH_MAX and _JOB_NAME.fullmatch(name) is not None


def check_operator_id(operator_id: str) -> str:
    """Return ``operator_id`` if it can name an operator's folder.

    Raises:
        ConfigurationError: as in :func:`check_job_name`.
    """
    return _check_name("operator id", operator_id, _OPERATOR_ID)


@lru_cache(maxsize=4096)  # A running job reads and writes the same few objects again and again.
def check_key(key: str) -> str:
    """Return ``key`` if it names an object below the root: no ``..``, no hidden or empty part.

    Hidden parts are refused because stores keep their unfinished writes under such names.

    Raises:
        ConfigurationError: the key could reach outside the root, or is not portable.
    """
    if len(key) > KEY_LENGTH_MAX or not all(map(is_key_part, key.split("/"))):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{_shortened(key)!r} is not an object name: join parts of letters, digits, '-', '_' "
            "and '.' with '/'",
        )
    return key


@lru_cache(maxsize=1_024)
def is_key_part(name: str) -> bool:
    """Return whether ``name`` can be the name of an object or of a folder."""
    return len(name) <= PART_LENGTH_MAX and _SEGMENT.fullmatch(name) is not None


def check_folder(prefix: str) -> str:
    """Return ``prefix`` if it is empty (the root) or names a folder and ends with ``/``.

    Raises:
        ConfigurationError: as in :func:`check_key`.
    """
    if prefix:
        check_key(prefix.removesuffix("/") if prefix.endswith("/") else f"{prefix}/")
    return prefix


def number_in(name: str) -> int | None:
    """Read the number of ``0000000012.json`` or ``0000000012/``; None for any other name."""
    match = _NUMBER.fullmatch(name)
    return used_number(match[1]) if match else None


def is_part_name(name: str) -> bool:
    """Return whether a name in the folder of a checkpoint is a state or in-flight file."""
    return _PART.fullmatch(name) is not None


def checkpoints_in(names: Iterable[str]) -> list[CheckpointId]:
    """Read the checkpoints that ``names`` begin with or are, ascending; others are left out."""
    numbers = (number_in(name) for name in names)
    return sorted(CheckpointId(number) for number in numbers if number is not None)


def generation_in(name: str) -> int | None:
    """Read the number of any record of a generation, such as ``0000000012.end.json``."""
    match = _GENERATION.fullmatch(name)
    return used_number(match[1]) if match else None


def used_number(digits: str) -> int | None:
    """Return the number in a name; None for one that Laminar never uses, which is a stray name.

    >>> used_number("0000000012"), used_number("0000000000"), used_number("9999999999")
    (12, None, None)
    """
    number = int(digits)
    return number if 0 < number <= NUMBER_MAX else None


def padded(number: int) -> str:
    """Return the ten digits of a checkpoint, a generation or a record.

    Raises:
        ConfigurationError: there is no such number.
    """
    if not 0 < number <= NUMBER_MAX:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{number} is no number of a checkpoint, a generation or a record: they go from 1 to "
            f"{NUMBER_MAX}",
        )
    return f"{number:010}"


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Keys of one job's objects.

    >>> JobPaths("payments").manifest(CheckpointId(12))
    'payments/checkpoints/0000000012/manifest.json'
    """

    job: str

    def __post_init__(self) -> None:
        check_job_name(self.job)

    @property
    def generations(self) -> str:
        """Folder of the claims and the other records of generations."""
        return f"{self.job}/generations/"

    @property
    def checkpoints(self) -> str:
        """Folder with one folder per triggered checkpoint."""
        return f"{self.job}/checkpoints/"

    @property
    def commits(self) -> str:
        """Folder of the commit records."""
        return f"{self.job}/commits/"

    @property
    def history(self) -> str:
        """Folder with one record per checkpoint that ended, whatever its outcome."""
        return f"{self.job}/history/"

    @property
    def audit(self) -> str:
        """Folder of the audit log."""
        return f"{self.job}/audit/"

    @property
    def audit_head(self) -> str:
        """Key of the head, which names the newest audit record; overwritten."""
        return f"{self.audit}head.json"

    @property
    def control(self) -> str:
        """Folder of the commands for the running job."""
        return f"{self.job}/control/"

    def control_command(self, number: int) -> str:
        """Key of one command; create-only."""
        return f"{self.control}{padded(number)}.json"

    def control_begun(self, number: int) -> str:
        """Key of the record that a generation took the command up; create-only."""
        return f"{self.control}{padded(number)}.begun.json"

    def control_result(self, number: int) -> str:
        """Key of the record of how a command ended; create-only."""
        return f"{self.control}{padded(number)}.result.json"

    def audit_record(self, number: int) -> str:
        """Key of one audit record; create-only."""
        return f"{self.audit}{padded(number)}.json"

    def claim(self, generation: Generation) -> str:
        """Key of the claim; create-only. The newest claim owns the job."""
        return f"{self.generations}{padded(generation)}.json"

    def base(self, generation: Generation) -> str:
        """Key of the record of the checkpoint that the generation starts from; create-only."""
        return f"{self.generations}{padded(generation)}.base.json"

    def base_copy(self, generation: Generation) -> str:
        """Key of the second copy of the base."""
        return f"{self.generations}{padded(generation)}.base.copy.json"

    def heartbeat(self, generation: Generation) -> str:
        """Key of the sign of life; overwritten."""
        return f"{self.generations}{padded(generation)}.heartbeat.json"

    def end(self, generation: Generation) -> str:
        """Key of the record that the generation ended without being killed; create-only."""
        return f"{self.generations}{padded(generation)}.end.json"

    def released(self, generation: Generation) -> str:
        """Key of the record that the claimed savepoint of this generation was deleted.

        Create-only.
        """
        return f"{self.generations}{padded(generation)}.released.json"

    @property
    def damages(self) -> str:
        """Folder with one record per checkpoint that the running job found to be damaged."""
        return f"{self.job}/damage/"

    def damage(self, checkpoint_id: CheckpointId) -> str:
        """Key of the record that files of this checkpoint are lost; create-only."""
        return f"{self.damages}{padded(checkpoint_id)}.json"

    @property
    def index(self) -> str:
        """Folder of the index of checkpoints."""
        return f"{self.job}/index/"

    def index_block(self, number: int) -> str:
        """Key of one block of the index; overwritten, and made from manifests."""
        return f"{self.index}{padded(number)}.json"

    @property
    def drills(self) -> str:
        """Folder with one record per restore drill."""
        return f"{self.job}/drills/"

    def drill(self, number: int) -> str:
        """Key of the record of a restore drill; create-only."""
        return f"{self.drills}{padded(number)}.json"

    def trigger(self, checkpoint_id: CheckpointId) -> str:
        """Key that reserves the id for one generation; create-only."""
        return f"{self._checkpoint(checkpoint_id)}/trigger.json"

    def manifest(self, checkpoint_id: CheckpointId) -> str:
        """Key whose creation completes the checkpoint; create-only."""
        return f"{self._checkpoint(checkpoint_id)}/manifest.json"

    @property
    def shared(self) -> str:
        """Folder of the segments that several checkpoints name."""
        return f"{self.job}/shared/"

    def state(
        self, checkpoint_id: CheckpointId, operator_id: str, subtask_index: int, part: int = 0
    ) -> str:
        """Key of a state segment of one operator subtask, written by this checkpoint only.

        Create-only.

        ``part`` counts its segments from 0.
        """
        number = f"{subtask_index}_{part}" if part else f"{subtask_index}"
        return f"{self._operator(checkpoint_id, operator_id)}/state_{number}.seg"

    def shared_segment(
        self, operator_id: str, generation: Generation, subtask_index: int, sequence: int
    ) -> str:
        """Key of a segment that several checkpoints may name; create-only.

        ``sequence`` counts the segments written by the subtask in this generation, from 0.
        """
        folder = f"{self.shared}{check_operator_id(operator_id)}"
        return f"{folder}/{padded(generation)}-{subtask_index}-{sequence:08}.seg"

    @property
    def staged(self) -> str:
        """Folder of rows that wait for their commit by a sink."""
        return f"{self.job}/staged/"

    def staged_by(self, operator_id: str) -> str:
        """Folder of the rows of one sink."""
        return f"{self.staged}{check_operator_id(operator_id)}/"

    def staged_file(
        self,
        operator_id: str,
        generation: Generation,
        subtask_index: int,
        sequence: int,
        suffix: str,
    ) -> str:
        """Key of rows that one subtask of a sink staged; create-only.

        ``sequence`` counts the files that the subtask staged in this generation, from 0.
        """
        name = f"{padded(generation)}-{subtask_index}-{sequence:08}.{suffix}"
        return f"{self.staged_by(operator_id)}{name}"

    def deletion(self, checkpoint_id: CheckpointId) -> str:
        """Key of the marker that retention creates before it deletes anything; create-only."""
        return f"{self._checkpoint(checkpoint_id)}/deletion.json"

    def inflight(self, checkpoint_id: CheckpointId, worker: int, part: int = 0) -> str:
        """Key of the in-flight data of one worker, of all channels together; create-only.

        ``part`` counts its files from 0: there is more than one if it is much.
        """
        number = f"{worker}_{part}" if part else f"{worker}"
        return f"{self.parts(checkpoint_id)}inflight_{number}.buf"

    def is_part(self, checkpoint_id: CheckpointId, key: str) -> bool:
        """Return whether ``key`` is exactly a state or in-flight file of this checkpoint.

        >>> JobPaths("payments").is_part(CheckpointId(12), "payments/checkpoints/0000000012/x")
        False
        """
        folder = f"{self._checkpoint(checkpoint_id)}/"
        return key.startswith(folder) and is_part_name(key.removeprefix(folder))

    def parts(self, checkpoint_id: CheckpointId) -> str:
        """Folder of the files that the workers write."""
        return f"{self._checkpoint(checkpoint_id)}/operators/"

    def commit(self, checkpoint_id: CheckpointId) -> str:
        """Key of the record that the output of this checkpoint was committed; create-only."""
        return f"{self.commits}{padded(checkpoint_id)}.json"

    def outcome(self, checkpoint_id: CheckpointId) -> str:
        """Key of the record of how the checkpoint ended; create-only."""
        return f"{self.history}{padded(checkpoint_id)}.json"

    def relative(self, key: str) -> str:
        """Turn a key of this job into the name that manifests use."""
        assert key.startswith(f"{self.job}/"), key
        return key.removeprefix(f"{self.job}/")

    def absolute(self, path: str) -> str:
        """Turn a name from a manifest into a key."""
        return f"{self.job}/{path}"

    def _operator(self, checkpoint_id: CheckpointId, operator_id: str) -> str:
        return f"{self.parts(checkpoint_id)}{check_operator_id(operator_id)}"

    def _checkpoint(self, checkpoint_id: CheckpointId) -> str:
        return f"{self.checkpoints}{padded(checkpoint_id)}"


def _check_name(what: str, name: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(name, str):  # aggregate(agg.count(…)) without a name, for example
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the {what} comes first and is text, not {type(name).__name__}",
        )
    if len(name) > NAME_LENGTH_MAX or not pattern.fullmatch(name):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{_shortened(name)!r} is no {what}: use 1 to {NAME_LENGTH_MAX} letters, digits, '-' "
            "and '_'",
        )
    return name


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}…"
