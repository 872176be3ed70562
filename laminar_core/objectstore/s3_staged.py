"""Uploads in parts that wait to be completed: durable data that no reader can see yet.

An upload outlives the process that began it. Its number and the ETags of its parts are enough to
complete it, once. A rule of the bucket that aborts incomplete uploads must leave them long
enough.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Sequence
from typing import Any

from laminar_core.objectstore.s3_requests import Client, S3Requests
from laminar_core.objectstore.s3_transfer import PartPool, Upload
from laminar_core.objectstore.sending import Kind, value_of
from laminar_core.records.paths import check_key


class StagedUploads:
    """Uploads below ``root``, the prefix of a store with its ``/``. Safe to use from threads."""

    def __init__(self, requests: S3Requests, pool: PartPool, root: str) -> None:
        self._requests = requests
        self._pool = pool
        self._root = root

    def stage(self, key: str, data: bytes | memoryview) -> tuple[str, list[str]]:
        """Upload all parts of the object; return the upload, and the ETag of each part.

        Raises:
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        upload_id, parts = Upload(self._requests, self._pool, self._name(key), data).stage({})
        return upload_id, [str(part["ETag"]) for part in parts]

    def complete(self, key: str, upload_id: str, etags: Sequence[str]) -> None:
        """Show the object; nothing happens if the upload is no longer there.

        Raises:
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        target = self._target(key, upload_id)

        def attempt(client: Client) -> None:
            client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})

        self._requests.send("write", target["Key"], attempt, {Kind.NOT_FOUND})

    def is_pending(self, key: str, upload_id: str) -> bool:
        """Return whether the upload can still be completed."""
        target = self._target(key, upload_id)

        def attempt(client: Client) -> bool:
            client.list_parts(**target, MaxParts=1)
            return True

        return self._requests.send("read", target["Key"], attempt, {Kind.NOT_FOUND}).kind is None

    def abort(self, key: str, upload_id: str) -> None:
        """Remove the upload and its parts; nothing happens if it is no longer there."""
        target = self._target(key, upload_id)
        self._requests.send(
            "delete",
            target["Key"],
            lambda client: client.abort_multipart_upload(**target),
            {Kind.NOT_FOUND},
        )

    def pending(self, prefix: str) -> list[tuple[str, str]]:
        """Return key and upload of each that waits, of keys that begin so."""
        where: dict[str, Any] = {**self._requests.common, "Prefix": self._root + prefix}
        found: list[tuple[str, str]] = []
        while True:
            page = value_of(
                self._requests.send(
                    "list",
                    self._root + prefix,
                    lambda client: client.list_multipart_uploads(**where),
                )
            )
            found += [
                (upload["Key"].removeprefix(self._root), upload["UploadId"])
                for upload in page.get("Uploads", [])
            ]
            if not page.get("IsTruncated"):
                return found
            where["KeyMarker"] = page["NextKeyMarker"]
            where["UploadIdMarker"] = page["NextUploadIdMarker"]

    def _name(self, key: str) -> str:
        return self._root + check_key(key)

    def _target(self, key: str, upload_id: str) -> dict[str, Any]:
        return {**self._requests.common, "Key": self._name(key), "UploadId": upload_id}
