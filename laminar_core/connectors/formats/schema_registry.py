"""Avro schemas by their number, from a schema registry, or from the program itself."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote

from laminar_core.arguments import require_instance
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.extras import needs_extra
from laminar_core.operators.base import JsonObject

if TYPE_CHECKING:
    from requests import Response, Session

_TIMEOUT_S = 30
_NOT_FOUND = 404
_DENIED = (401, 403)
_REFUSED = (409, 422)
_BUSY = (429, 500, 502, 503, 504)
_NUMBERS = range(2**32)
"""Numbers of schemas: a message has four bytes for one."""
_ATTEMPTS = 3
REFERENCES_DEEP_MAX = 8
"""Schemas refer to schemas; a registry that answers in circles is not followed for ever."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as JSON text, behind those of other subjects that it names."""

    text: str
    named: tuple[str, ...] = ()


class Schemas(Protocol):
    """Where schemas come from."""

    def read(self, schema_id: int) -> SchemaText:
        """Return a schema by its number.

        Raises:
            MessageRefusedError: there is none with this number (UNKNOWN_SCHEMA).
            ConfigurationError: the credentials are refused.
            StorageUnavailable: the registry does not answer.
        """
        ...

    def register(self, subject: str, text: str) -> int:
        """Return the number of a schema of this subject, which is new if need be.

        Raises:
            ConfigurationError: the registry refuses the schema, or the credentials.
            StorageUnavailable: the registry does not answer.
        """
        ...


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry with Confluent's interface.

    Args:
        url: its address, without credentials.
        user: name for basic authentication; None: none.
        password_variable: the environment variable with the password, in the driver and in the
            workers. The password itself is in no description and in no message.
        ca_file: certificates of the authority that signed the registry's; None: the usual ones.

    Raises:
        ConfigurationError: a password in the address, or a user without a password
            (INVALID_OPTION).
    """

    url: str
    user: str | None = None
    password_variable: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        require_instance(self.url, str, "the address of a schema registry must be text")
        if "@" in self.url or not self.url.startswith(("http://", "https://")):
            raise _invalid(
                "the address of a schema registry is http:// or https://, without a user or a "
                "password: give user= and password_variable="
            )
        if (self.user is None) != (self.password_variable is None):
            raise _invalid("a schema registry needs user= and password_variable=, or neither")

    def describe(self) -> JsonObject:
        """Return what decides whether a number still means the same schema."""
        return {"registry": self.url}

    def read(self, schema_id: int) -> SchemaText:
        """Return a schema by its number.

        Raises:
            MessageRefusedError: there is none (UNKNOWN_SCHEMA), or it is no Avro (WRONG_SCHEMA).
            ConfigurationError: the credentials are refused.
            StorageUnavailable: the registry does not answer.
        """
        found = self._request("GET", f"schemas/ids/{schema_id}", _has_schema)
        if found is None:
            why = f"the schema registry has no schema {schema_id}"
            raise MessageRefusedError(Defect.UNKNOWN_SCHEMA, why)
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise MessageRefusedError(
                Defect.WRONG_SCHEMA, f"schema {schema_id} is {kind}, not Avro"
            )
        return SchemaText(found["schema"], tuple(self._named(found, REFERENCES_DEEP_MAX)))

    def register(self, subject: str, text: str) -> int:
        """Return the number of a schema of this subject, which is new if need be."""
        path = f"subjects/{quote(subject, safe='')}/versions"
        found = self._request("POST", path, _has_id, {"schema": text, "schemaType": "AVRO"})
        if found is None:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, f"schema registry {self.url} does not know {path}"
            )
        return found["id"]

    def _named(self, found: dict[str, Any], deep: int) -> list[str]:
        """Return the schemas that one refers to, each behind those that it refers to itself."""
        texts: list[str] = []
        for reference in found.get("references") or ():
            subject = quote(reference["subject"], safe="", errors="replace")
            path = f"subjects/{subject}/versions/{reference['version']}"
            named = self._request("GET", path, _has_schema) if deep else None
            if named is None:
                why = f"the schema registry has no {path}, or it refers to too many others"
                raise MessageRefusedError(Defect.UNKNOWN_SCHEMA, why)
            texts += [*self._named(named, deep - 1), named["schema"]]
        return texts

    def _request(
        self,
        method: str,
        path: str,
        is_answer: Callable[[dict[str, Any]], bool],
        body: JsonObject | None = None,
    ) -> dict[str, Any] | None:
        """Return what the registry answers; None: it has no such thing."""
        with needs_extra("kafka-avro", "Messages in Avro"):
            import requests  # noqa: PLC0415
        at = f"schema registry {self.url}, {path}"
        try:
            answer = self._session.request(
                method, f"{self.url.rstrip('/')}/{path}", json=body, timeout=_TIMEOUT_S
            )
            if answer.status_code in _DENIED:
                raise ConfigurationError(
                    ErrorCode.BROKER_ACCESS_DENIED,
                    f"{at}: status {answer.status_code}: correct user= and the variable with the "
                    "password",
                )
            if answer.status_code in _REFUSED:
                why = str(_object(answer).get("message", answer.status_code))
                raise ConfigurationError(ErrorCode.WRONG_SCHEMA, f"{at}: {' '.join(why.split())}")
            if answer.status_code == _NOT_FOUND:
                return None
            answer.raise_for_status()
            found = _object(answer)
        except requests.RequestException as error:
            why = f"{at}: {_reason(error)}"
            raise StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, why) from error
        if not is_answer(found):
            why = "it answers, but not as a schema registry does: check its address"
            raise StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, f"{at}: {why}")
        return found

    @cached_property
    def _session(self) -> "Session":
        """Connections that are kept, and requests that are tried again."""
        with needs_extra("kafka-avro", "Messages in Avro"):
            import requests  # noqa: PLC0415
            from requests.adapters import HTTPAdapter  # noqa: PLC0415
            from urllib3.util.retry import Retry  # noqa: PLC0415
        session = requests.Session()
        again = Retry(
            _ATTEMPTS,
            backoff_factor=0.2,
            status_forcelist=_BUSY,
            raise_on_status=False,
            allowed_methods=None,
        )
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=again))
        session.verify = self.ca_file or True
        if self.user is not None and self.password_variable is not None:
            password = os.environ.get(self.password_variable)
            if not password:
                raise _invalid(
                    f"the environment variable {self.password_variable} is not set: the password "
                    "of the schema registry comes from it, in the driver and in the workers"
                )
            session.auth = (self.user, password)
        return session

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connections behind: a worker makes its own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """Schemas that the program itself knows: their numbers to their JSON texts.

    Raises:
        ConfigurationError: a number that no message has room for (INVALID_OPTION).

    >>> KnownSchemas({7: '"string"'}).read(7).text
    '"string"'
    """

    texts: Mapping[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        require_instance(self.texts, Mapping, "texts must be schemas by number")
        for number in self.texts:
            # Only for an exact integer is ``in`` a comparison, and no search.
            if type(number) is not int or number not in _NUMBERS:
                raise _invalid(f"{number!r} is not the number of a schema: use 0 to {2**32 - 1}")

    def describe(self) -> JsonObject:
        """Return what decides whether a number still means the same schema."""
        return {"schemas": {str(number): json.loads(text) for number, text in self.texts.items()}}

    def read(self, schema_id: int) -> SchemaText:
        """Return a schema by its number."""
        text = self.texts.get(schema_id)
        if text is None:
            why = f"no schema has the number {schema_id}"
            raise MessageRefusedError(Defect.UNKNOWN_SCHEMA, why)
        return SchemaText(text)

    def register(self, subject: str, text: str) -> int:
        """Return the number of a schema that is known.

        Raises:
            ConfigurationError: it is not.
        """
        wanted = json.loads(text)
        for number, known in self.texts.items():
            if json.loads(known) == wanted:
                return number
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA, f"{subject}: no schema that is known is {text}: add it"
        )


def _object(answer: "Response") -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one if it is something else."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _has_schema(answer: dict[str, Any]) -> bool:
    references: object = answer.get("references") or []
    return (
        isinstance(answer.get("schema"), str)
        and isinstance(references, list)
        and all(map(_is_reference, cast("list[object]", references)))
    )


def _is_reference(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    reference = cast("dict[str, object]", found)
    is_name = isinstance(reference.get("subject"), str)
    return is_name and isinstance(reference.get("version"), int)


def _has_id(answer: dict[str, Any]) -> bool:
    return type(answer.get("id")) is int and answer["id"] in _NUMBERS


def _reason(error: BaseException) -> str:
    """Return what the system says below the layers of the HTTP client, or what these say."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and isinstance(cause.errno, int):
            return f"no answer: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return str(error)


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
