"""How the command line makes its options from the models, and where their values come from.

The command line wins over the environment, that over ``laminar.toml``, and that over the default:
click does it, and remembers which it was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource
from pydantic.fields import FieldInfo

from laminar_core.configuration import FILE_NAME, Configuration, all_settings
from laminar_core.options import NONE, Options, Setting
from laminar_core.units import Duration, Instant

Decorator = Callable[[Any], Any]
OTHERS = "Other options"
FILE = "laminar.file"
"""Key of the file that was read, in the context of a command."""

STRONGER_THAN_FILES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
SETTINGS = {setting.key: setting for setting in all_settings()}


class SettingType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since click 8.4
    """Reads a text as pydantic reads the field."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.allowed
        self._setting = setting

    def convert(
        self,
        value: Any,  # noqa: ANN401 - a text, or a value that was read before
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - of the field's type
        """Read it."""
        if not isinstance(value, str) or self._setting.is_repeatable:
            return value
        try:
            return self._setting.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class KeyValueType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since click 8.4
    """``key=value`` becomes a pair; the value may be empty and may contain ``=``."""

    name = "KEY=VALUE"

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


class SettingOption(click.Option):
    """The option of a field, with its other names and its switches."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        setting: Setting,
        group: str,
        once: bool,
        **more: Any,  # noqa: ANN401 - click's own
    ) -> None:
        flag, default, many = setting.flag, setting.default, setting.is_repeatable
        off = f"/--no-{names[0].removeprefix('--')}" if setting.is_switch else ""
        pairs = setting.allowed == "KEY=VALUE"
        kind = None if setting.is_switch else KeyValueType() if pairs else SettingType(setting)
        also = f"  [also: {', '.join(flag.switches)}]" if flag.switches else ""
        also += "  [default: none]" if default is None and NONE in setting.info.metadata else ""
        more = {
            "help": setting.description + ("  [repeatable]" if many else also),
            "show_default": not (many or setting.is_switch or default is None),
            "is_flag": setting.is_switch or None,
            "multiple": many,
            "metavar": None if setting.is_switch else setting.allowed,
            "envvar": None if once else setting.variable,
        } | more
        if not (many or default is None):  # None would count as given, also of a required option.
            more["default"] = default
        super().__init__([names[0] + off, *flag.also, setting.parameter], type=kind, **more)
        self.setting = setting
        self.group = group

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401 - click's own
        """Add the switches; all values are kept, so that contradictions are found."""
        switches = self.setting.flag.switches
        if not switches:
            super().add_to_parser(parser, ctx)
            return
        parser.add_option(self, [*self.opts], self.name, action="append", nargs=1)
        for switch, value in switches.items():
            parser.add_option(self, [switch], self.name, action="append_const", const=value)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, Any]:
        """Find the value in the strongest source; settings of Spark are put together from all."""
        given = opts.get(str(self.name))
        if self.setting.flag.switches and isinstance(given, list):
            words = cast("list[str]", given)
            if len(set(words)) > 1:
                names = [*self.opts, *self.setting.flag.switches]
                raise click.UsageError(f"give exactly one of {', '.join(names)}", ctx)
            opts = {**opts, str(self.name): words[-1]}
        value, source = super().consume_value(ctx, opts)
        if isinstance(self.type, KeyValueType) and source in STRONGER_THAN_FILES:
            value = (*(ctx.lookup_default(str(self.name)) or ()), *value)
        return value, source

    def process_value(self, ctx: click.Context, value: Any) -> Any:  # noqa: ANN401 - click's own
        """Return the value as the field has it: pairs become a dictionary."""
        value = super().process_value(ctx, value)
        return dict(value) if isinstance(self.type, KeyValueType) else value

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Name what has the wrong value: the variable, or the option."""
        if ctx and ctx.get_parameter_source(str(self.name)) is ParameterSource.ENVIRONMENT:
            return f"{self.setting.variable} in the environment"
        return super().get_error_hint(ctx)


class GroupedCommand(click.Command):
    """Shows the options of each model under a heading of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(param, "group", OTHERS), []).append(record)
        others = groups.pop(OTHERS)
        for group, records in [*groups.items(), (OTHERS, others)]:
            with formatter.section(group):
                formatter.write_dl(records)


def option_of(
    setting: Setting,
    group: str,
    name: str = "",
    *,
    once: bool = False,
    **more: Any,  # noqa: ANN401 - click's own
) -> Decorator:
    """Return the decorator that adds a field's option; ``once``: no variable sets it."""
    return click.option(
        name or setting.flag.name,
        cls=SettingOption,
        setting=setting,
        group=group,
        once=once,
        **more,
    )


def options_of(settings: Iterable[Setting], group: str) -> Decorator:
    """Return the decorator that adds the options of several fields, below a heading."""
    return together(*(option_of(setting, group) for setting in settings))


def together(*decorators: Decorator) -> Decorator:
    """Make one decorator of several; the first one's option comes first."""

    def decorate(command: Any) -> Any:  # noqa: ANN401 - a function, or a command
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def taken(values: dict[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    """Take the values of these settings out of ``values``, under the names of their fields."""
    return {setting.name: values.pop(setting.parameter) for setting in settings}


def _read_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Let click find the values of the file; it is read before any option."""
    del param
    path = path or (Path(FILE_NAME) if Path(FILE_NAME).is_file() else None)
    if path is not None:
        ctx.default_map = file_values(Configuration.read(path))
        ctx.meta[FILE] = path
    return path


def file_values(configuration: Configuration) -> dict[str, Any]:
    """Return what a file sets, by the names of the parameters."""
    found: dict[str, Any] = {}
    for setting in SETTINGS.values():
        model: Options = (
            getattr(configuration, setting.section) if setting.section else configuration
        )
        if setting.name in model.model_fields_set:
            value = getattr(model, setting.name)
            value = (
                tuple(cast("dict[str, Any]", value).items()) if isinstance(value, dict) else value
            )
            found[setting.parameter] = "none" if value is None else value
    return found


config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    envvar="LAMINAR_CONFIG",
    is_eager=True,
    expose_value=False,
    callback=_read_file,
    metavar="FILE",
    help=f"Read defaults from this file  [default: {FILE_NAME}, if it is here].",
)
store_option = together(
    option_of(SETTINGS["store"], "Job", required=True, show_envvar=True), config_option
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _type_of(annotation: Any) -> SettingType:  # noqa: ANN401 - as typing has it
    return SettingType(Setting("", "value", FieldInfo.from_annotation(annotation)))


DURATION = _type_of(Duration)
INSTANT = _type_of(Instant)
