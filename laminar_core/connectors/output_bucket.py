"""The output of a Parquet sink below a prefix of a bucket.

    {prefix}/part-{checkpoint}-{subtask}-{sequence}-g{generation}.parquet      visible
    {prefix}/_laminar/commits/{checkpoint}.json      the files of one committed checkpoint
    {prefix}/_laminar/withdrawn/{generation}-{base}-{last}      empty; see ``Withdrawal``
    {prefix}/_laminar/output.json      says that the prefix belongs to a sink

A bucket has no rename. So a staged file is an upload in parts that is not completed, and no reader
sees it. To complete it takes one request, moves no bytes, and shows the whole file at once.

Source: the committers of Hadoop's S3A connector stage their files in the same way.
"""

import json
import mmap
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa

from laminar_core.connectors.output_place import (
    FINAL,
    PendingUpload,
    StagedOutput,
    Withdrawal,
    check_size,
    checkpoints_in,
    generation_of,
    gone,
    of_another_run,
    withdrawals_in,
)
from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.protocol.types import Generation

_COMMITS = "_laminar/commits/"
_WITHDRAWN = "_laminar/withdrawn/"
_MARKER = "_laminar/output.json"
_FORMAT_VERSION = 1
_FILE_BYTES_MAX = 5 * 1024**4
"""Amazon's limit for an object."""


class OutputBucket:
    """See ``OutputPlace``. Nothing is sent before it is used."""

    def __init__(self, uri: str) -> None:
        self._objects = S3ObjectStore(uri)
        self._uploads = self._objects.staged_uploads()

    @property
    def name(self) -> str:
        """See ``OutputPlace.name``. Without the parameters of the URI."""
        return self._objects.uri.partition("?")[0].rstrip("/")

    def create(self) -> None:
        """See ``OutputPlace.create``. Both rights that a sink needs are tried out.

        Raises:
            ConfigurationError: the bucket is not there, or refuses.
            StorageUnavailable: it does not answer.
        """
        content = json.dumps({"format_version": _FORMAT_VERSION}).encode()
        self._objects.put_if_absent(_MARKER, content)
        self._uploads.abort(_MARKER, self._uploads.stage(_MARKER, b"probe")[0])
        self._uploads.pending("")

    def is_output(self) -> bool:
        """See ``OutputPlace.is_output``."""
        return self._objects.size(_MARKER) is not None

    def has_files(self) -> bool:
        """See ``OutputPlace.has_files``."""
        return any(not name.startswith(".") for name in self._objects.children(""))

    def address(self, name: str) -> str:
        """See ``OutputPlace.address``. The key as it is, while a URI quotes some characters."""
        return f"{unquote(self.name)}/{name}"

    def readable(self, name: str) -> pa.BufferReader:
        """See ``OutputPlace.readable``."""
        data = self._objects.get(name, _FILE_BYTES_MAX)
        if data is None:
            raise FileNotFoundError(f"{self.name}/{name}")
        return pa.BufferReader(data)

    def staging_file(self, staged: str) -> "StagingFileOfBucket":
        """See ``OutputPlace.staging_file``."""
        return StagingFileOfBucket(self._objects, f"{self.name}/{staged}")

    def sync_staged(self) -> None:
        """See ``OutputPlace.sync_staged``. An upload is durable once it was answered."""

    def is_staged(self, output: StagedOutput) -> bool:
        """See ``OutputPlace.is_staged``."""
        return self._uploads.is_pending(output.final, _upload_of(output).upload_id)

    def is_there(self, output: StagedOutput) -> bool:
        """See ``OutputPlace.is_there``. The parts of an upload have the length that was sent."""
        return self.is_staged(output) or self._objects.size(output.final) == output.size_bytes

    def publish(self, outputs: Sequence[StagedOutput]) -> None:
        """See ``OutputPlace.publish``. Several uploads are completed at a time."""
        self._objects.pool.run(partial(self._complete, output) for output in outputs)

    def _complete(self, output: StagedOutput) -> None:
        upload = _upload_of(output)
        if self.is_staged(output):
            # Another driver may carry out the same decision: then nothing is staged any more.
            if self._objects.size(output.final) is not None and self.is_staged(output):
                raise of_another_run(self.name, output.checkpoint_id)
            self._uploads.complete(output.final, upload.upload_id, upload.etags)
        # It is done, or was before: an upload that was completed is no longer pending.
        size_bytes = self._objects.size(output.final)
        final = f"{self.name}/{output.final}"
        if size_bytes is None:
            raise gone(f"upload {upload.upload_id}", final, output)
        check_size(final, size_bytes, output)

    def manifest_ids(self) -> list[int]:
        """See ``OutputPlace.manifest_ids``."""
        return checkpoints_in(self._objects.children(_COMMITS))

    def manifest(self, checkpoint_id: int) -> bytes | None:
        """See ``OutputPlace.manifest``."""
        return self._objects.get(_manifest_key(checkpoint_id))

    def manifest_name(self, checkpoint_id: int) -> str:
        """See ``OutputPlace.manifest_name``."""
        return f"{self.name}/{_manifest_key(checkpoint_id)}"

    def write_manifest(self, checkpoint_id: int, data: bytes) -> bool:
        """See ``OutputPlace.write_manifest``."""
        return self._objects.put_if_absent(_manifest_key(checkpoint_id), data)

    def sync_manifests(self) -> None:
        """See ``OutputPlace.sync_manifests``. What was answered is durable."""

    def remove_manifest(self, checkpoint_id: int) -> None:
        """See ``OutputPlace.remove_manifest``."""
        self._objects.delete(_manifest_key(checkpoint_id))

    def withdrawals(self) -> list[Withdrawal]:
        """See ``OutputPlace.withdrawals``."""
        return withdrawals_in(self._objects.children(_WITHDRAWN))

    def add_withdrawal(self, withdrawal: Withdrawal) -> None:
        """See ``OutputPlace.add_withdrawal``."""
        self._objects.put(_WITHDRAWN + withdrawal.name, b"")

    def remove_withdrawal(self, withdrawal: Withdrawal) -> None:
        """See ``OutputPlace.remove_withdrawal``."""
        self._objects.delete(_WITHDRAWN + withdrawal.name)

    def shown(self) -> list[str]:
        """See ``OutputPlace.shown``."""
        return [name for name in self._objects.children("") if FINAL.fullmatch(name)]

    def remove_shown(self, names: Sequence[str]) -> None:
        """See ``OutputPlace.remove_shown``."""
        self._objects.pool.run(partial(self._objects.delete, name) for name in names)

    def discard_staged(self, generation: Generation) -> None:
        """See ``OutputPlace.discard_staged``. Also what a process left that died in ``create``."""
        for key, upload_id in self._uploads.pending(""):
            is_older = FINAL.fullmatch(key) is not None and generation_of(key) < generation
            if is_older or key == _MARKER:
                self._uploads.abort(key, upload_id)


@dataclass(slots=True)
class StagingFileOfBucket:
    """See ``StagingFile``. Written on the worker's own disk, and uploaded when it is complete."""

    objects: S3ObjectStore
    name: str
    _staged: tuple[str, str] | None = None
    """The name and the upload, once there is one."""

    def open(self) -> BinaryIO:
        """See ``StagingFile.open``. The file has no name there, so it goes with the process."""
        return tempfile.TemporaryFile(prefix="laminar-output-")

    def stage(self, file: BinaryIO, final: str) -> PendingUpload:
        """See ``StagingFile.stage``."""
        file.flush()
        with file:  # The mapping is let go of with its last part.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            upload_id, etags = self.objects.staged_uploads().stage(final, data)
        self._staged = final, upload_id
        return PendingUpload(upload_id, tuple(etags))

    def abandon(self) -> None:
        """See ``StagingFile.abandon``."""
        if self._staged is not None:
            with suppress(StorageUnavailable):
                self.objects.staged_uploads().abort(*self._staged)


def _manifest_key(checkpoint_id: int) -> str:
    return f"{_COMMITS}{checkpoint_id:010d}.json"


def _upload_of(output: StagedOutput) -> PendingUpload:
    if output.upload is None:
        raise CorruptCheckpointError(
            ErrorCode.MANIFEST_UNREADABLE,
            f"{output.staged} was staged in a directory, and this sink writes to a bucket: give "
            "the sink its own path",
        )
    return output.upload
