"""Where the Parquet sink puts its files: what a directory and a bucket have in common.

A file is *staged* while no reader can see it, *shown* once it has its final name, and *committed*
once the commit manifest of a checkpoint lists it.
"""

import errno
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.protocol.types import Generation

STAGED = re.compile(r"(?P<generation>\d{10})-\d{5}-\d{6,}\.parquet")
FINAL = re.compile(r"part-(?P<checkpoint>\d{10})-\d{5}-\d{6,}-g(?P<generation>\d+)\.parquet")
_MANIFEST = re.compile(r"(?P<checkpoint>\d{10})\.json")
_WITHDRAWAL = re.compile(r"(\d{10})-(\d{10})-(\d{10})")
_REACTIONS = {
    errno.ENOSPC: (ErrorCode.STORE_FULL, "free some space"),
    errno.EDQUOT: (ErrorCode.STORE_FULL, "raise the quota"),
    errno.EROFS: (ErrorCode.STORE_READ_ONLY, "mount it writable"),
}
_ETAG = re.compile(r'"?[A-Za-z0-9_+/=-]{1,128}"?')
_UPLOAD_ID_LENGTH_MAX = 1_024


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An upload in parts, invisible until it is completed; ``etags`` are those of its parts."""

    upload_id: str
    etags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """One committable: a durable file that no reader can see yet, and the name it is to get.

    ``checkpoint_id`` is the first checkpoint that contains the rows. A later one commits them if
    that one was given up. ``upload``: what is to be completed, in a bucket.
    """

    checkpoint_id: int
    staged: str
    final: str
    row_count: int
    size_bytes: int
    upload: PendingUpload | None = None

    def to_json(self) -> JsonObject:
        """Return the form stored in a checkpoint."""
        found: JsonObject = asdict(self)
        if self.upload is None:
            del found["upload"]
        else:
            etags: list[JsonValue] = list(self.upload.etags)
            found["upload"] = {"upload_id": self.upload.upload_id, "etags": etags}
        return found

    @classmethod
    def from_json(cls, committable: JsonObject) -> "StagedOutput":
        """Read a committable.

        Raises:
            CorruptCheckpointError: it is not one that a writer of this sink produced.
        """
        numbers = [committable.get(key) for key in ("checkpoint_id", "row_count", "size_bytes")]
        staged, final = str(committable.get("staged")), str(committable.get("final"))
        checkpoint_id, row_count, size_bytes = (n if isinstance(n, int) else -1 for n in numbers)
        upload = _pending_upload(committable.get("upload"))
        # Names come out of storage and are joined to a path: nothing but the exact form will do.
        is_sound = STAGED.fullmatch(staged) and FINAL.fullmatch(final)
        is_sound = is_sound and (upload is None) == ("upload" not in committable)
        if not is_sound or min(checkpoint_id, row_count, size_bytes) < 0:
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE,
                f"not a committable of a Parquet sink: {json.dumps(committable)}",
            )
        return cls(checkpoint_id, staged, final, row_count, size_bytes, upload)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A record that output was taken back. All it says is in its name.

    It covers the files of checkpoints after ``base_id``, up to ``last_id``, that generations before
    ``generation`` wrote.
    """

    generation: int
    base_id: int
    last_id: int

    @property
    def name(self) -> str:
        """The name of the record in its place."""
        return f"{self.generation:010d}-{self.base_id:010d}-{self.last_id:010d}"

    def covers(self, final: str) -> bool:
        """Return whether the file with this final name was taken back."""
        is_later = self.base_id < checkpoint_of(final) <= self.last_id
        return is_later and generation_of(final) < self.generation

    def implies(self, other: "Withdrawal") -> bool:
        """Return whether this one covers all that the other covers."""
        is_wider = self.base_id <= other.base_id and self.last_id >= other.last_id
        return is_wider and self.generation >= other.generation


class StagingFile(Protocol):
    """Where one file is written until it is staged."""

    @property
    def name(self) -> str:
        """The place, for messages."""
        ...

    def open(self) -> BinaryIO:
        """Create it.

        Raises:
            OSError: it cannot be created.
            ConfigurationError: there is a file of this name, so two sinks share one place.
        """
        ...

    def stage(self, file: BinaryIO, final: str) -> PendingUpload | None:
        """Make what was written durable, and close it. ``final``: the name it is to get.

        Raises:
            OSError, StorageUnavailable: that failed.
        """
        ...

    def abandon(self) -> None:
        """Delete it; its rows are in no snapshot."""
        ...


class OutputPlace(Protocol):
    """A directory or a prefix of a bucket that belongs to one sink of one job."""

    @property
    def name(self) -> str:
        """The place, for messages."""
        ...

    def create(self) -> None:
        """Make the place ready for output, unless it is."""
        ...

    def is_output(self) -> bool:
        """Return whether a sink has made this place its own."""
        ...

    def has_files(self) -> bool:
        """Return whether anything is here, hidden files left aside."""
        ...

    def address(self, name: str) -> str:
        """Return where other tools find a shown file: a path, or ``s3://bucket/key``."""
        ...

    def readable(self, name: str) -> Path | pa.BufferReader:
        """Return a shown file for Arrow.

        Raises:
            OSError, StorageUnavailable: it cannot be read.
        """
        ...

    def staging_file(self, staged: str) -> StagingFile:
        """Return where a file is written until it is staged."""
        ...

    def sync_staged(self) -> None:
        """Make the names of staged files durable."""
        ...

    # --- commits ----------------------------------------------------------------------------

    def is_staged(self, output: StagedOutput) -> bool:
        """Return whether the file is still to be published."""
        ...

    def is_there(self, output: StagedOutput) -> bool:
        """Return whether the file is staged or shown, in its full length."""
        ...

    def publish(self, outputs: Sequence[StagedOutput]) -> None:
        """Show files under their final names; those that are shown already stay as they are.

        Raises:
            CorruptCheckpointError: a file is missing, or not the one that was staged.
            ConfigurationError: another file has the name.
        """
        ...

    def manifest_ids(self) -> list[int]:
        """Return the checkpoints with a commit manifest, oldest first; none in no such place."""
        ...

    def manifest(self, checkpoint_id: int) -> bytes | None:
        """Return a commit manifest."""
        ...

    def manifest_name(self, checkpoint_id: int) -> str:
        """Return the place of a commit manifest, for messages."""
        ...

    def write_manifest(self, checkpoint_id: int, data: bytes) -> bool:
        """Create a commit manifest, durably and at once; False if there is one."""
        ...

    def sync_manifests(self) -> None:
        """Make durable which manifests there are."""
        ...

    def remove_manifest(self, checkpoint_id: int) -> None:
        """Remove a commit manifest, durably; nothing happens if there is none."""
        ...

    # --- what is to go ------------------------------------------------------------------------

    def withdrawals(self) -> list[Withdrawal]:
        """Return what was taken back; nothing in older outputs."""
        ...

    def add_withdrawal(self, withdrawal: Withdrawal) -> None:
        """Record it, durably; one that is there stays."""
        ...

    def remove_withdrawal(self, withdrawal: Withdrawal) -> None:
        """Forget it: another one implies it."""
        ...

    def shown(self) -> list[str]:
        """Return the names of all files that a reader of the place sees, listed or not."""
        ...

    def remove_shown(self, names: Sequence[str]) -> None:
        """Remove shown files, durably."""
        ...

    def discard_staged(self, generation: Generation) -> None:
        """Remove what older generations staged."""
        ...


def final_name(
    checkpoint_id: int, subtask_index: int, sequence: int, generation: Generation
) -> str:
    """Return the name of a shown file."""
    return f"part-{checkpoint_id:010d}-{subtask_index:05d}-{sequence:06d}-g{generation}.parquet"


def staged_name(generation: Generation, subtask_index: int, sequence: int) -> str:
    """Return the name of a file until its checkpoint is known."""
    return f"{generation:010d}-{subtask_index:05d}-{sequence:06d}.parquet"


def generation_of(final: str) -> int:
    """Return the generation in the name of a shown file; 0 in any other name."""
    match = FINAL.fullmatch(final)
    return 0 if match is None else int(match["generation"])


def checkpoint_of(final: str) -> int:
    """Return the checkpoint in the name of a shown file; 0 in any other name."""
    match = FINAL.fullmatch(final)
    return 0 if match is None else int(match["checkpoint"])


def withdrawals_in(names: Iterable[str]) -> list[Withdrawal]:
    """Return the records of withdrawals among these names."""
    matches = (_WITHDRAWAL.fullmatch(name) for name in names)
    return [Withdrawal(*map(int, match.groups())) for match in matches if match]


def is_withdrawn(final: str, withdrawals: Iterable[Withdrawal]) -> bool:
    """Return whether one of these covers the file with this final name."""
    return any(withdrawal.covers(final) for withdrawal in withdrawals)


def checkpoints_in(names: Iterable[str]) -> list[int]:
    """Return the checkpoints of the commit manifests among these names, oldest first."""
    matches = (_MANIFEST.fullmatch(name) for name in names)
    return sorted(int(match["checkpoint"]) for match in matches if match)


def check_size(where: str, size_bytes: int, output: StagedOutput) -> None:
    """Compare the length of a file with the staged length.

    Raises:
        CorruptCheckpointError: they differ.
    """
    if size_bytes != output.size_bytes:
        raise CorruptCheckpointError(
            ErrorCode.LENGTH_DIFFERS,
            f"{where} has {size_bytes} bytes, {output.size_bytes} were staged: it was damaged; "
            f"recover from an older checkpoint",
        )


def gone(staged: str, final: str, output: StagedOutput) -> CorruptCheckpointError:
    """Return the error for a file that is neither staged nor shown."""
    return CorruptCheckpointError(
        ErrorCode.OBJECT_MISSING,
        f"{staged} and {final} are both gone: {output.row_count} rows of checkpoint "
        f"{output.checkpoint_id} cannot be committed; recover from an older checkpoint",
    )


def of_another_run(place: str, checkpoint_id: int) -> ConfigurationError:
    """Return the error for output that is not this job's."""
    return ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"{place} already holds checkpoint {checkpoint_id} of another run: "
        f"give this one a directory of its own, or delete that one",
    )


@contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Turn failures of the file system into StorageUnavailable, by cause."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = (error.errno or 0) if isinstance(error, OSError) else 0
        code, advice = _REACTIONS.get(number, (ErrorCode.STORE_IO, "is it there and writable?"))
        raise StorageUnavailable(code, f"{place} failed: {error}; {advice}") from error


def _pending_upload(found: JsonValue) -> PendingUpload | None:
    """Read an upload that came out of storage; None: it is none."""
    if not isinstance(found, dict):
        return None
    upload_id, etags = found.get("upload_id"), found.get("etags")
    if not isinstance(upload_id, str) or not isinstance(etags, list):
        return None
    texts = [etag for etag in etags if isinstance(etag, str) and _ETAG.fullmatch(etag)]
    if not 0 < len(upload_id) <= _UPLOAD_ID_LENGTH_MAX or len(texts) != len(etags) or not texts:
        return None
    return PendingUpload(upload_id, tuple(texts))
