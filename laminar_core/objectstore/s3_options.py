"""``s3://bucket/prefix?name=value``: the options of a store in a bucket of S3."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from laminar_core.errors import ConfigurationError
from laminar_core.objectstore.bucket_options import BucketOptions, checked_endpoint
from laminar_core.units import size_bytes

MIB = 1024**2
PART_BYTES_MIN = 5 * MIB
"""Amazon's limit for all parts but the last."""
ONE_PUT_BYTES_MAX = 5 * 1024**3
"""Amazon's limit for an object that is not uploaded in parts."""
PARTS_MAX = 10_000

_CUSTOMER_KEY = re.compile(r"sse_?c|customer", re.IGNORECASE)
_READ_BACK_LATER = {"GLACIER", "DEEP_ARCHIVE"}


def _size(value: object) -> object:
    try:
        return size_bytes(value) if isinstance(value, str) else value
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _readable_at_once(value: object) -> object:
    if value in _READ_BACK_LATER:
        raise ValueError("what is archived cannot be read back when a job restarts")
    return value


Size = Annotated[int, BeforeValidator(_size)]


class S3Options(BucketOptions):
    """All options of the URI. None: boto3's default, or the bucket's."""

    scheme: ClassVar[str] = "s3"
    example: ClassVar[str] = "s3://bucket/prefix?region=eu-central-1"
    secrets_advice: ClassVar[str] = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile of ~/.aws with "
        "profile=…, or use a role"
    )
    refused: ClassVar[tuple[tuple[re.Pattern[str], str], ...]] = (
        (
            _CUSTOMER_KEY,
            (
                "keys of your own (SSE-C) are not supported, because every worker would have to be "
                "given them: use sse=aws:kms with a key of the key service"
            ),
        ),
    )

    endpoint_url: Annotated[str, BeforeValidator(checked_endpoint)] | None = None
    """For a server other than Amazon's."""
    region: str | None = None
    profile: str | None = None
    """Section of ``~/.aws/config``; it must exist wherever the job runs."""
    addressing_style: Literal["path", "virtual", "auto"] | None = None
    """Where requests contain the bucket's name; "path" if ``endpoint_url`` is given."""
    expected_bucket_owner: str | None = None
    """Account that must own the bucket, else every request is refused."""
    request_payer: Literal["requester"] | None = None
    checksums: Literal["when_supported", "when_required"] | None = None
    """Whether uploads carry a CRC; some older servers accept none."""

    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    sse_kms_key_id: str | None = None
    bucket_key: bool | None = None
    storage_class: Annotated[str, BeforeValidator(_readable_at_once)] | None = None
    acl: str | None = None

    part_size: Size = Field(default=8 * MIB, ge=PART_BYTES_MIN, le=ONE_PUT_BYTES_MAX)
    """Bytes of a part in uploads and downloads."""
    multipart_threshold: Size = Field(default=16 * MIB, ge=PART_BYTES_MIN, le=ONE_PUT_BYTES_MAX)
    """Larger objects are moved in parts; at its largest (5GiB) none is uploaded in parts."""
    parallel: int = Field(default=8, ge=1, le=64)
    """Parts moved at the same time, by all threads of a process together."""

    retry_budget_ms: int = Field(default=30_000, ge=0)
    """How long one failing request is retried."""
    connect_timeout_ms: int = Field(default=5_000, ge=1)
    read_timeout_ms: int = Field(default=20_000, ge=1)
    """Longest silence of the server."""

    @property
    def uploads_in_parts(self) -> bool:
        """Whether objects above some size are uploaded in parts."""
        return self.multipart_threshold < ONE_PUT_BYTES_MAX

    def conflict(self) -> str | None:
        """See ``BucketOptions.conflict``."""
        if self.sse_kms_key_id and self.sse not in {"aws:kms", "aws:kms:dsse"}:
            return "sse_kms_key_id needs sse=aws:kms"
        return None
