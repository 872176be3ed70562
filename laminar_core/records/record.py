"""The base of all JSON records, and references to stored objects."""

from typing import Annotated, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.limits import (
    COUNT_MAX,
    DEPTH_MAX,
    DURATION_MS_MAX,
    FILE_BYTES_MAX,
    ITEMS_MAX,
    PARALLELISM_MAX,
    PATH_LENGTH_MAX,
    RECORD_BYTES_MAX,
    RECORD_VALUES_MAX,
    TEN_DIGITS_MAX,
    TEXT_LENGTH_MAX,
    TIME_MS_MAX,
    TIME_MS_MIN,
    TIME_US_MAX,
    TIME_US_MIN,
)
from laminar_core.records.paths import check_key
from laminar_core.records.seal import seal

T = TypeVar("T")


def _within_budget(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse a free-form value that is too deep, or has too many members or digits."""
    level: list[JsonValue] = [value]
    members = 0
    for _ in range(DEPTH_MAX):
        if not level:
            return value
        below: list[JsonValue] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
            elif isinstance(each, int) and abs(each) > COUNT_MAX:
                raise ValueError("a number has more than 64 bits")
        members += len(below)
        if members > ITEMS_MAX:
            raise ValueError(f"it has more than {ITEMS_MAX} members")
        level = below
    raise ValueError(f"it has more than {DEPTH_MAX} levels")


def _shortened(text: object, info: ValidationInfo) -> object:
    """Shorten a text that this process writes: readers refuse longer ones."""
    if info.mode == "python" and isinstance(text, str) and len(text) > TEXT_LENGTH_MAX:
        return f"{text[: TEXT_LENGTH_MAX - 1]}…"
    return text


JsonObject = Annotated[
    dict[str, JsonValue],
    AfterValidator(_within_budget),
    WithJsonSchema({"type": "object", "maxProperties": ITEMS_MAX}),
]
Positive = Annotated[int, Field(ge=1, le=TEN_DIGITS_MAX)]
"""A number of a generation or a record, or anything else that has ten digits."""
CheckpointNumber = Annotated[CheckpointId, Field(ge=1, le=TEN_DIGITS_MAX)]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Parallelism = Annotated[int, Field(ge=1, le=PARALLELISM_MAX)]
TimeMs = Annotated[int, Field(ge=TIME_MS_MIN, le=TIME_MS_MAX)]
"""A wall clock, in milliseconds since 1970."""
TimeUs = Annotated[int, Field(ge=TIME_US_MIN, le=TIME_US_MAX)]
"""Event time in microseconds."""
DurationMs = Annotated[float, Field(ge=-DURATION_MS_MAX, le=DURATION_MS_MAX)]
Prose = Annotated[str, BeforeValidator(_shortened)]
"""Text for people. It may contain the message of any error, so writers shorten it."""
Many = Annotated[tuple[T, ...], Field(max_length=ITEMS_MAX)]
PerOperator = Annotated[dict[str, T], Field(max_length=ITEMS_MAX)]
"""Something for each operator, by its id."""
FileBytes = Annotated[int, Field(ge=0, le=FILE_BYTES_MAX)]
"""A length of a file, or a place in one."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """Base of everything written as JSON. Every field has a bound; see ``limits``."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        str_max_length=TEXT_LENGTH_MAX,
    )

    def as_json(self) -> str:
        """Return the record as an indented JSON object."""
        return self.model_dump_json(indent=1)

    def to_bytes(self) -> bytes:
        """Return the record as JSON in UTF-8; equal records give equal bytes.

        Raises:
            ConfigurationError: no reader would accept it.
        """
        data = self.as_json().encode() + b"\n"
        if (problem := why_beyond_limits(data)) is not None:
            raise self.too_large(problem)
        return data

    def too_large(self, problem: str) -> ConfigurationError:
        """Return the exception for a record that no reader would accept."""
        return ConfigurationError(
            ErrorCode.OBJECT_TOO_LARGE,
            f"the {type(self).__name__} cannot be written: {problem}; run the job with fewer "
            "subtasks, or split the request",
        )


class Sealed(Record):
    """A record that ends in the digest of itself; see ``seal``."""

    def to_bytes(self) -> bytes:
        """Return the record as sealed JSON in UTF-8; equal records give equal bytes."""
        return seal(super().to_bytes())


def why_beyond_limits(data: bytes) -> str | None:
    """Return why parsing the record could exceed the memory bounds; None: it cannot."""
    if len(data) > RECORD_BYTES_MAX:
        return f"it has {len(data)} bytes, and {RECORD_BYTES_MAX} is the most that is read"
    if (values := data.count(b",")) > RECORD_VALUES_MAX:
        return f"it has {values} values, and {RECORD_VALUES_MAX} is the most that is read"
    return None


class FileRef(Record):
    """A reference to a stored object, with its length and digest so that a reader can verify it."""

    path: str = Field(description="Relative to the job's folder.", max_length=PATH_LENGTH_MAX)
    size_bytes: FileBytes
    sha256: Sha256

    @model_validator(mode="after")
    def _stays_inside_the_job(self) -> Self:
        try:
            check_key(self.path)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self
