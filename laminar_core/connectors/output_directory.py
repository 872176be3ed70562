"""The output of a Parquet sink in a directory that driver and workers share.

    {path}/_staging/{generation}-{subtask}-{sequence}.parquet      written, not visible
    {path}/part-{checkpoint}-{subtask}-{sequence}-g{generation}.parquet      visible
    {path}/_laminar/commits/{checkpoint}.json      the files of one committed checkpoint
    {path}/_laminar/withdrawn/{generation}-{base}-{last}      empty; see ``Withdrawal``

A file gets its final name by one rename, after it was synced.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from laminar_core.connectors.output_place import (
    FINAL,
    STAGED,
    StagedOutput,
    Withdrawal,
    check_size,
    checkpoints_in,
    gone,
    of_another_run,
    withdrawals_in,
)
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.durability import flush_to_disk
from laminar_core.objectstore.local import NO_HARD_LINKS
from laminar_core.protocol.types import Generation

_UNFINISHED = ".tmp"
"""Names of manifests that are being written end with it."""


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """See ``OutputPlace``. Every name below the directory is built here."""

    path: Path

    @property
    def name(self) -> str:
        """See ``OutputPlace.name``."""
        return str(self.path)

    @property
    def staging(self) -> Path:
        """Folder of files that are not committed."""
        return self.path / "_staging"

    @property
    def commits(self) -> Path:
        """Folder of the commit manifests."""
        return self.path / "_laminar" / "commits"

    @property
    def withdrawn(self) -> Path:
        """Folder of the records of withdrawals."""
        return self.path / "_laminar" / "withdrawn"

    def create(self) -> None:
        """See ``OutputPlace.create``."""
        self.staging.mkdir(parents=True, exist_ok=True)
        self.commits.mkdir(parents=True, exist_ok=True)

    def is_output(self) -> bool:
        """See ``OutputPlace.is_output``."""
        return self.commits.is_dir()

    def has_files(self) -> bool:
        """See ``OutputPlace.has_files``."""
        if not self.path.exists():
            return False
        return any(not entry.name.startswith(".") for entry in self.path.iterdir())

    def address(self, name: str) -> str:
        """See ``OutputPlace.address``."""
        return str(self.path / name)

    def readable(self, name: str) -> Path:
        """See ``OutputPlace.readable``."""
        return self.path / name

    def staging_file(self, staged: str) -> "StagingFileInDirectory":
        """See ``OutputPlace.staging_file``."""
        return StagingFileInDirectory(self.staging / staged)

    def sync_staged(self) -> None:
        """See ``OutputPlace.sync_staged``."""
        sync_directory(self.staging)

    def is_staged(self, output: StagedOutput) -> bool:
        """See ``OutputPlace.is_staged``."""
        return (self.staging / output.staged).exists()

    def is_there(self, output: StagedOutput) -> bool:
        """See ``OutputPlace.is_there``."""
        places = (self.staging / output.staged, self.path / output.final)
        return any(_size_of(place) == output.size_bytes for place in places)

    def publish(self, outputs: Sequence[StagedOutput]) -> None:
        """See ``OutputPlace.publish``."""
        self.create()
        for output in outputs:
            self._rename(output)
        sync_directory(self.path)
        sync_directory(self.staging)

    def _rename(self, output: StagedOutput) -> None:
        staged, final = self.staging / output.staged, self.path / output.final
        if (size_bytes := _size_of(staged)) is not None:
            check_size(str(staged), size_bytes, output)
            # Another driver may carry out the same decision: then nothing is staged any more.
            if final.exists() and staged.exists():
                raise of_another_run(self.name, output.checkpoint_id)
            with suppress(FileNotFoundError):
                staged.rename(final)
        if (size_bytes := _size_of(final)) is None:
            raise gone(str(staged), str(final), output)
        check_size(str(final), size_bytes, output)

    def manifest_ids(self) -> list[int]:
        """See ``OutputPlace.manifest_ids``."""
        return checkpoints_in(_names(self.commits))

    def manifest(self, checkpoint_id: int) -> bytes | None:
        """See ``OutputPlace.manifest``."""
        try:
            return self.manifest_path(checkpoint_id).read_bytes()
        except FileNotFoundError:
            return None

    def manifest_name(self, checkpoint_id: int) -> str:
        """See ``OutputPlace.manifest_name``."""
        return str(self.manifest_path(checkpoint_id))

    def manifest_path(self, checkpoint_id: int) -> Path:
        """Return the path of the commit manifest of a checkpoint."""
        return self.commits / f"{checkpoint_id:010d}.json"

    def write_manifest(self, checkpoint_id: int, data: bytes) -> bool:
        """See ``OutputPlace.write_manifest``. Each attempt has a temporary file of its own."""
        temporary = self.commits / f"{checkpoint_id:010d}-{token_hex(8)}{_UNFINISHED}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                flush_to_disk(file.fileno())
            created = _link(temporary, self.manifest_path(checkpoint_id))
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        temporary.unlink(missing_ok=True)
        self.sync_manifests()
        return created

    def sync_manifests(self) -> None:
        """See ``OutputPlace.sync_manifests``."""
        sync_directory(self.commits)

    def remove_manifest(self, checkpoint_id: int) -> None:
        """See ``OutputPlace.remove_manifest``."""
        self.manifest_path(checkpoint_id).unlink(missing_ok=True)
        self.sync_manifests()

    def withdrawals(self) -> list[Withdrawal]:
        """See ``OutputPlace.withdrawals``."""
        return withdrawals_in(_names(self.withdrawn))

    def add_withdrawal(self, withdrawal: Withdrawal) -> None:
        """See ``OutputPlace.add_withdrawal``."""
        self.withdrawn.mkdir(parents=True, exist_ok=True)
        (self.withdrawn / withdrawal.name).touch()
        sync_directory(self.withdrawn)
        sync_directory(self.withdrawn.parent)

    def remove_withdrawal(self, withdrawal: Withdrawal) -> None:
        """See ``OutputPlace.remove_withdrawal``. It may come back after a power failure."""
        (self.withdrawn / withdrawal.name).unlink(missing_ok=True)

    def shown(self) -> list[str]:
        """See ``OutputPlace.shown``."""
        return [name for name in _names(self.path) if FINAL.fullmatch(name)]

    def remove_shown(self, names: Sequence[str]) -> None:
        """See ``OutputPlace.remove_shown``."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        if names:  # A file that comes back after a power failure would stay for ever.
            sync_directory(self.path)

    def discard_staged(self, generation: Generation) -> None:
        """See ``OutputPlace.discard_staged``. Also what a manifest was being written to.

        A driver that is just writing one writes it again.
        """
        for name in _names(self.commits):
            if name.endswith(_UNFINISHED):
                (self.commits / name).unlink(missing_ok=True)
        for name in _names(self.staging):
            match = STAGED.fullmatch(name)
            if match and int(match["generation"]) < generation:
                (self.staging / name).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StagingFileInDirectory:
    """See ``StagingFile``."""

    path: Path

    @property
    def name(self) -> str:
        """See ``StagingFile.name``."""
        return str(self.path)

    def open(self) -> BinaryIO:
        """See ``StagingFile.open``."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self.path.open("xb")
        except FileExistsError as error:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.path} exists: two sinks write to one directory; give each its own",
            ) from error

    def stage(self, file: BinaryIO, final: str) -> None:
        """See ``StagingFile.stage``."""
        del final  # It is renamed to that later.
        file.flush()
        flush_to_disk(file.fileno())
        file.close()

    def abandon(self) -> None:
        """See ``StagingFile.abandon``."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make the names in ``path`` durable, not only the files behind them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        flush_to_disk(handle)
    finally:
        os.close(handle)


def _size_of(path: Path) -> int | None:
    """Return the length of a file in bytes; None if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _link(temporary: Path, path: Path) -> bool:
    """Show a whole file under its name; False if the name is taken.

    A file system without hard links cannot tell a taken name in the same step.
    """
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        if path.exists():
            return False
        temporary.rename(path)
    return True


def _names(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir()] if path.is_dir() else []
