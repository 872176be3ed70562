"""``scheme://bucket/prefix?name=value``: the place of a store and its options, without secrets.

Every process of a job opens the store anew from this text. So it must contain every option that
differs from what the client library finds by itself. It also appears in messages and logs.
"""

import re
from typing import Annotated, ClassVar, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from laminar_core.errors import ConfigurationError, ErrorCode

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_SECRET = re.compile(r"secret|token|password|access_key|account_key|sas|credential", re.IGNORECASE)
_PLACE = {"bucket", "prefix"}


def checked_endpoint(value: object) -> object:
    """Return the address of a server without its last slash; for pydantic."""
    parts = urlsplit(str(value))
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError("it must look like https://host:port")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong there")
    return str(value).rstrip("/")


def _prefix(value: object) -> object:
    parts = str(value).strip("/").split("/")
    if parts != [""] and any(part in {"", ".", ".."} for part in parts):
        raise ValueError("no empty part, no '.' and no '..'")
    return "/".join(parts)


class BucketOptions(BaseModel):
    """Options of every bucket. None: the default of the client library, or of the bucket."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: ClassVar[str]
    example: ClassVar[str]
    bucket_is_called: ClassVar[str] = "bucket"
    secrets_advice: ClassVar[str]
    """Where credentials belong instead of the URI."""
    refused: ClassVar[tuple[tuple[re.Pattern[str], str], ...]] = ()
    """Names of parameters that are refused for a reason of their own, with that reason."""

    bucket: str
    prefix: Annotated[str, BeforeValidator(_prefix)] = ""

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read a URI.

        Raises:
            ConfigurationError: it is none, has an unknown parameter, or contains a secret. What
                might be secret is not repeated in the message.
        """
        bucket, prefix, pairs = cls._split(uri)
        names = [name for name, _ in pairs]
        for name in names:
            cls._check_name(name)
        if len(set(names)) < len(names):
            raise cls._invalid("every parameter can be given once")
        try:
            options = cls.model_validate({"bucket": bucket, "prefix": prefix, **dict(pairs)})
        except ValidationError as error:
            first = error.errors()[0]
            said = first["msg"].removeprefix("Value error, ")
            raise cls._invalid(": ".join([*map(str, first["loc"][:1]), said])) from None
        if problem := options.conflict():
            raise cls._invalid(problem)
        return options

    def conflict(self) -> str | None:
        """Return what is wrong with parameters that do not fit each other."""
        return None

    @property
    def place(self) -> str:
        """Bucket and prefix alone, for messages."""
        return f"{self.scheme}://{self.bucket}/{quote(self.prefix)}".rstrip("/")

    @property
    def uri(self) -> str:
        """The shortest text that ``parse`` reads as the same options."""
        changed = self.model_dump(exclude_defaults=True, exclude=_PLACE)
        pairs = [(name, _text(value)) for name, value in changed.items()]
        query = urlencode(pairs, safe=":/", quote_via=quote)
        return f"{self.place}?{query}" if query else self.place

    @classmethod
    def _split(cls, uri: str) -> tuple[str, str, list[tuple[str, str]]]:
        try:
            parts = urlsplit(uri)
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise cls._invalid(f"write for example {cls.example}") from None
        if "@" in parts.netloc:
            raise cls._invalid(cls._no_secrets("what stands before the @"))
        if not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
            needed = f"it needs the name of a {cls.bucket_is_called}, for example {cls.example}"
            raise cls._invalid(needed)
        return parts.netloc, unquote(parts.path), pairs

    @classmethod
    def _check_name(cls, name: str) -> None:
        known = [field for field in cls.model_fields if field not in _PLACE]
        if name in known:
            return
        for pattern, problem in cls.refused:
            if pattern.search(name):
                raise cls._invalid(f"{name}: {problem}")
        if _SECRET.search(name):
            raise cls._invalid(cls._no_secrets(name))
        raise cls._invalid(f"{name!r} is not a parameter; there are: {', '.join(known)}")

    @classmethod
    def _no_secrets(cls, what: str) -> str:
        return f"{what} does not belong into a URI, which is shown in logs: {cls.secrets_advice}"

    @classmethod
    def _invalid(cls, problem: str) -> ConfigurationError:
        said = f"the {cls.scheme}:// URI cannot be used: {problem}"
        return ConfigurationError(ErrorCode.INVALID_OPTION, said)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
