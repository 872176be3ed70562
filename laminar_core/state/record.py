"""What all JSON records have in common, and how a record names a stored object."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from laminar_core.errors import ConfigurationError
from laminar_core.state.paths import check_key
from laminar_core.state.seal import seal

JsonObject = dict[str, JsonValue]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """Base of everything written as JSON."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def to_bytes(self) -> bytes:
        """JSON in UTF-8; the same record always gives the same bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


class Sealed(Record):
    """A record that ends in the digest of itself; see ``seal``."""

    def to_bytes(self) -> bytes:
        """JSON in UTF-8, sealed; the same record always gives the same bytes."""
        return seal(super().to_bytes())


class FileRef(Record):
    """A stored object, named so that a reader can tell whether it got exactly that object."""

    path: str = Field(description="Relative to the job's folder.")
    size_bytes: Count
    sha256: Sha256

    @model_validator(mode="after")
    def _stays_inside_the_job(self) -> Self:
        try:
            check_key(self.path)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self
