"""Options that several commands share, and what their values may be."""

from dataclasses import dataclass

import click

from laminar_core.errors import ConfigurationError
from laminar_core.pipeline.config import instant_ms
from laminar_core.units import duration_us, size_bytes


@dataclass(frozen=True, slots=True)
class GlobalSettings:
    """What stands before the command."""

    debug: bool = False


class DurationType(click.ParamType):
    """``"10 seconds"``; stays text, but is refused with the name of its option."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        try:
            duration_us(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        return value


class InstantType(click.ParamType):
    """``"2026-03-01T12:00:00Z"``; stays text, but is refused with the name of its option."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        try:
            instant_ms(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        return value


class BytesType(click.ParamType):
    """``"64MiB"`` becomes bytes; a number alone is bytes already."""

    name = "size"

    def __init__(self, *, may_be_zero: bool = False) -> None:
        self._may_be_zero = may_be_zero

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Count them."""
        if isinstance(value, int):
            return value
        try:
            size = size_bytes(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        if size == 0 and not self._may_be_zero:
            self.fail(f"{value!r} is not a size: write for example 64MiB or 1GiB", param, ctx)
        return size


class KeyValueType(click.ParamType):
    """``key=value`` becomes a pair; the value may be empty and may contain ``=``."""

    name = "key=value"

    def convert(
        self,
        value: str | tuple[str, str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, str]:
        """Split it."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = value.partition("=")
        if not equals or not key:
            self.fail(f"it needs key=value, not {value!r}", param, ctx)
        return key, rest


DURATION = DurationType()
INSTANT = InstantType()
BYTES = BytesType()
BYTES_OR_ZERO = BytesType(may_be_zero=True)
KEY_VALUE = KeyValueType()

store_option = click.option(
    "--store",
    required=True,
    envvar="LAMINAR_STORE",
    show_envvar=True,
    help="Directory or URI of the checkpoint store.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
