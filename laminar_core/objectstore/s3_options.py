"""``s3://bucket/prefix?name=value``: the place of a store and its options, without secrets.

Every process of a job opens the store anew from this text. So it must contain every option that
differs from what boto3 finds by itself. It also appears in messages and logs.
"""

import re
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.units import size_bytes

MIB = 1024**2
PART_BYTES_MIN = 5 * MIB
"""Amazon's limit for all parts but the last."""
ONE_PUT_BYTES_MAX = 5 * 1024**3
"""Amazon's limit for an object that is not uploaded in parts."""
PARTS_MAX = 10_000

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_SECRET = re.compile(r"secret|token|password|access_key|credential", re.IGNORECASE)
_CUSTOMER_KEY = re.compile(r"sse_?c|customer", re.IGNORECASE)
_READ_BACK_LATER = {"GLACIER", "DEEP_ARCHIVE"}
_EXAMPLE = "s3://bucket/prefix?region=eu-central-1"


def _size(value: object) -> object:
    try:
        return size_bytes(value) if isinstance(value, str) else value
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _endpoint(value: object) -> object:
    parts = urlsplit(str(value))
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError("it must look like https://host:port")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong there")
    return str(value).rstrip("/")


def _readable_at_once(value: object) -> object:
    if value in _READ_BACK_LATER:
        raise ValueError("what is archived cannot be read back when a job restarts")
    return value


def _prefix(value: object) -> object:
    parts = str(value).strip("/").split("/")
    if parts != [""] and any(part in {"", ".", ".."} for part in parts):
        raise ValueError("no empty part, no '.' and no '..'")
    return "/".join(parts)


Size = Annotated[int, BeforeValidator(_size)]


class S3Options(BaseModel):
    """All options of the URI. None: boto3's default, or the bucket's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bucket: str
    prefix: Annotated[str, BeforeValidator(_prefix)] = ""

    endpoint_url: Annotated[str, BeforeValidator(_endpoint)] | None = None
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

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read a URI.

        Raises:
            ConfigurationError: it is none, has an unknown parameter, or contains a secret. What
                might be secret is not repeated in the message.
        """
        bucket, prefix, pairs = _split(uri)
        names = [name for name, _ in pairs]
        for name in names:
            _check_name(name, [known for known in cls.model_fields if known not in _PLACE])
        if len(set(names)) < len(names):
            raise _invalid("every parameter can be given once")
        try:
            options = cls.model_validate({"bucket": bucket, "prefix": prefix, **dict(pairs)})
        except ValidationError as error:
            first = error.errors()[0]
            name, said = first["loc"][0], first["msg"].removeprefix("Value error, ")
            raise _invalid(f"{name}: {said}") from None
        if options.sse_kms_key_id and options.sse not in {"aws:kms", "aws:kms:dsse"}:
            raise _invalid("sse_kms_key_id needs sse=aws:kms")
        return options

    @property
    def place(self) -> str:
        """Bucket and prefix alone, for messages."""
        return f"s3://{self.bucket}/{quote(self.prefix)}".rstrip("/")

    @property
    def uri(self) -> str:
        """The shortest text that ``parse`` reads as the same options."""
        changed = self.model_dump(exclude_defaults=True, exclude=_PLACE)
        pairs = [(name, _text(value)) for name, value in changed.items()]
        query = urlencode(pairs, safe=":/", quote_via=quote)
        return f"{self.place}?{query}" if query else self.place


_PLACE = {"bucket", "prefix"}


def _split(uri: str) -> tuple[str, str, list[tuple[str, str]]]:
    try:
        parts = urlsplit(uri)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _invalid(f"write for example {_EXAMPLE}") from None
    if "@" in parts.netloc:
        raise _invalid(_no_secrets("what stands before the @"))
    if not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise _invalid(f"it needs the name of a bucket, for example {_EXAMPLE}")
    return parts.netloc, unquote(parts.path), pairs


def _check_name(name: str, known: list[str]) -> None:
    if name in known:
        return
    if _CUSTOMER_KEY.search(name):
        raise _invalid(
            f"{name}: keys of your own (SSE-C) are not supported, because every worker would have "
            "to be given them: use sse=aws:kms with a key of the key service"
        )
    if _SECRET.search(name):
        raise _invalid(_no_secrets(name))
    raise _invalid(f"{name!r} is not a parameter; there are: {', '.join(known)}")


def _no_secrets(what: str) -> str:
    return (
        f"{what} does not belong into a URI, which is shown in logs: set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, name a profile of ~/.aws with profile=…, or use a role"
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, f"the s3:// URI cannot be used: {problem}")
