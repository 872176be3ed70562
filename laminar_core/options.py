"""How an option is declared: once, as a field of a model.

A field has a type, a default and a docstring, which is its description. From it are made the option
of the command line, the environment variable, the key in ``laminar.toml`` and the argument in
Python. ``configuration`` declares the options.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from laminar_core.errors import ConfigurationError, ErrorCode

_PREFIX = "Value error, "
_SHOWN_MAX = 60
"""Characters of a value in a message; more than this would hide the message."""
_PLAIN = {
    "Input should be": "must be",
    "a valid integer": "a whole number",
    "a valid dictionary": "a table",
    "a valid tuple": "a list",
    "a valid ": "a ",
}
"""pydantic's words, and those of a person who writes a file."""


class Options(BaseModel):
    """Base of all options. Its error is one line that names the option."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        defer_build=True,
    )

    if not TYPE_CHECKING:  # Type checkers make the signature from the fields.

        def __init__(self, /, *given: object, **values: object) -> None:
            """Check the values; those of fields with ``kw_only=False`` may have no name.

            Raises:
                ConfigurationError: one of them is unknown or not allowed (INVALID_OPTION).
            """
            fields = type(self).model_fields.items()
            names = [name for name, info in fields if info.kw_only is False]
            if len(given) > len(names) or values.keys() & names[: len(given)]:
                raise TypeError(f"{type(self).__name__} takes options by name, once each")
            try:
                super().__init__(**dict(zip(names, given, strict=False)), **values)
            except ValidationError as error:
                text = problem_of(error, type(self))
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION, f"{type(self).__name__}: {text}"
                ) from error

        # Nested models are checked without this method, and the outermost reports the whole path.
        __init__.__pydantic_base_init__ = True


def _none(value: object, check: ValidatorFunctionWrapHandler) -> object:
    if value is None or value == "none":
        return None
    try:
        return check(value)
    except ValidationError as error:
        raise ValueError(f"{_sentence(error.errors())} (or none)") from None


NONE = WrapValidator(_none)
"""The text ``none`` means None, which neither the command line nor TOML can write."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How the command line names a field, if not ``--name-of-the-field``."""

    name: str = ""
    also: tuple[str, ...] = ()
    """Other names of the same option."""
    switches: Mapping[str, str] = field(default_factory=dict[str, str])
    """Flags without a value, and the value that each of them stands for."""


@dataclass(frozen=True)
class Setting:
    """One field, and its name in each of the places where it can be set."""

    section: str
    """Its table in ``laminar.toml``; empty: it is in none."""
    name: str
    info: FieldInfo
    prefix: str = ""
    """Sets variables and parameters apart that would have the same name."""

    @property
    def key(self) -> str:
        """Its key in ``laminar.toml``."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def flag(self) -> Flag:
        """How the command line names it."""
        found = next((each for each in self.info.metadata if isinstance(each, Flag)), Flag())
        return found if found.name else replace(found, name=f"--{self.name.replace('_', '-')}")

    @property
    def parameter(self) -> str:
        """Its name among the parameters of a command."""
        return self.prefix + self.flag.name.removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"LAMINAR_{self.parameter.upper()}"

    @property
    def default(self) -> Any:  # noqa: ANN401 - of the field's type
        """Its value if no source sets it."""
        return self.info.get_default(call_default_factory=True)

    @property
    def description(self) -> str:
        """One or two sentences."""
        return " ".join((self.info.description or "").split())

    @cached_property
    def types(self) -> tuple[Any, ...]:
        """Its possible types, and the values of a ``Literal``."""
        return tuple(_types(self.info.annotation))

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.info.annotation is bool

    @property
    def is_repeatable(self) -> bool:
        """Whether the command line may name it several times."""
        return tuple in self.types or dict in self.types

    @property
    def allowed(self) -> str:
        """The form of a value in capitals, or the possible values."""
        choices = [*self.flag.switches.values()] if timedelta in self.types else []
        choices += [each for each in self.types if isinstance(each, str)]
        if timedelta in self.types:
            choices.append("DURATION")
        elif dict in self.types:
            choices.append("KEY=VALUE")
        elif str in self.types and int in self.types:
            choices.append("SIZE")
        elif int in self.types:
            choices.append("N")
        elif str in self.types or tuple in self.types:
            choices.append("TEXT")
        return "|".join([*choices, "none"] if NONE in self.info.metadata else choices)

    def parse(self, text: str) -> Any:  # noqa: ANN401 - of the field's type
        """Read a value as the command line or a variable has it.

        Raises:
            ValueError: it is not allowed; the message says what is.
        """
        try:
            return self._adapter.validate_strings(text)
        except ValidationError as error:
            raise ValueError(_sentence(error.errors())) from error

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        kind = Annotated[self.info.annotation, *self.info.metadata, self.flag]  # pyright: ignore[reportInvalidTypeForm] - the type is known at run time only
        return TypeAdapter(cast("type[Any]", kind))

    def words(self, value: object) -> list[str]:
        """Return the words of a command line that set it."""
        for switch, meaning in self.flag.switches.items():
            if value == meaning:
                return [switch]
        if isinstance(value, bool):
            return [self.flag.name if value else self.flag.name.replace("--", "--no-", 1)]
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, str]", value)
            value = tuple(f"{name}={each}" for name, each in pairs.items())
        values = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        texts = ["none" if each is None else str(each) for each in values]
        return [word for text in texts for word in (self.flag.name, text)]


def settings_of(model: type[BaseModel], section: str = "", prefix: str = "") -> list[Setting]:
    """Return the fields of a model that are options, in their order."""
    return [
        Setting(section, name, info, prefix)
        for name, info in model.model_fields.items()
        if not _is_section(info)
    ]


def sections_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the fields of a model that are models themselves."""
    return {
        name: cast("type[BaseModel]", info.annotation)
        for name, info in model.model_fields.items()
        if _is_section(info)
    }


def words_of(options: BaseModel) -> list[str]:
    """Return the words of a command line that set what ``options`` was given."""
    return [
        word
        for setting in settings_of(type(options))
        if setting.name in options.model_fields_set
        for word in setting.words(getattr(options, setting.name))
    ]


def shown(value: object) -> str:
    """Return a value as a message shows it: in one line, and a large one not whole."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def problem_of(error: ValidationError, model: type[BaseModel]) -> str:
    """Say in one line which field is wrong, and what is allowed."""
    errors = error.errors(include_url=False)
    place, model = _place(errors[0], model)
    if errors[0]["type"] == "extra_forbidden":
        return f"{'.'.join(place)} is unknown; there are: {', '.join(model.model_fields)}"
    same = [each for each in errors if tuple(map(str, each["loc"]))[: len(place)] == place]
    return ": ".join(filter(None, (".".join(place), _sentence(same))))


def _place(error: ErrorDetails, model: type[BaseModel]) -> tuple[tuple[str, ...], type[BaseModel]]:
    """Return the names down to the field, and its model; what follows is pydantic's own."""
    place: list[str] = []
    for part in map(str, error["loc"]):
        place.append(part)
        if part not in sections_of(model):
            break
        model = sections_of(model)[part]
    return tuple(place), model


def _sentence(errors: list[ErrorDetails]) -> str:
    """Several errors are those of the members of a union."""
    texts = [each["msg"] for each in errors]
    for foreign, plain in _PLAIN.items():
        texts = [text.replace(foreign, plain) for text in texts]
    if texts[0].startswith(_PREFIX) or errors[0]["type"] == "missing":
        return texts[0].removeprefix(_PREFIX)
    return f"{' or '.join(texts)}, not {shown(errors[0]['input'])}"


def _is_section(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)


def _types(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - as typing has it
    if get_origin(annotation) in (tuple, dict):
        yield get_origin(annotation)
    elif get_origin(annotation) is Annotated:
        yield from _types(get_args(annotation)[0])
    elif members := get_args(annotation):
        for each in members:
            yield from _types(each)
    else:
        yield annotation
