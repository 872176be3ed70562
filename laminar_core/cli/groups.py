"""Groups of commands: two that import a command when it is used, one with a command by default."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import click
from click.shell_completion import CompletionItem


def examples(*lines: str) -> str:
    """Return the end of a command's help: these calls, one per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command as help and completion show it, without an import of its module.

    ``place`` is ``module:name``, below ``laminar_core.cli``.
    """

    name: str
    place: str
    summary: str = ""

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        return getattr(importlib.import_module(f"laminar_core.cli.{module}"), attribute)


class LazyGroup(click.Group):
    """Imports the module of a command when the command is used: help and completion are quick.

    Args:
        sections: the commands below their headings, in the order of the help.
        aliases: older names of commands, which help and completion do not show.
        more: arguments of ``click.Group``.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        sections: Mapping[str, Sequence[CommandEntry]],
        aliases: Sequence[CommandEntry] = (),
        **more: Any,  # noqa: ANN401 - click's own
    ) -> None:
        super().__init__(*args, **more)
        self.sections = sections
        self._shown = {entry.name: entry for part in sections.values() for entry in part}
        self._aliases = {alias.name: alias for alias in aliases}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names that help shows, in its order."""
        del ctx
        return [*self._shown, *(name for name in self.commands if name not in self._shown)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none with this name.

        A command that is called by an older name is not kept in ``commands``, because lists of
        commands would show it twice.
        """
        del ctx
        if cmd_name not in self.commands and cmd_name in self._aliases:
            return self._aliases[cmd_name].load()
        if cmd_name not in self.commands and cmd_name in self._shown:
            self.commands[cmd_name] = self._shown[cmd_name].load()
        return self.commands.get(cmd_name)

    def load_all(self) -> Self:
        """Import every command that help shows, and those of its groups, into ``commands``."""
        for entry in self._shown.values():
            command = self.commands.setdefault(entry.name, entry.load())
            if isinstance(command, PartlyLazyGroup):
                command.load_all()
        return self

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of commands for each section."""
        del ctx
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(entry.name, entry.summary) for entry in entries])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of commands and options that begin with ``incomplete``."""
        return [*self._names(incomplete), *click.Command.shell_complete(self, ctx, incomplete)]

    def _names(self, incomplete: str) -> Iterator[CompletionItem]:
        for entry in self._shown.values():
            if entry.name.startswith(incomplete):
                yield CompletionItem(entry.name, help=entry.summary)


class PartlyLazyGroup(click.Group):
    """Imports the modules of some of its commands when one of them, or the help, is asked for.

    Args:
        later: these commands; the others are added as to any group.
        more: arguments of ``click.Group``.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        later: Sequence[CommandEntry],
        **more: Any,  # noqa: ANN401 - click's own
    ) -> None:
        super().__init__(*args, **more)
        self._later = {entry.name: entry for entry in later}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none with this name."""
        if cmd_name in self._later:
            self.add_command(self._later.pop(cmd_name).load(), cmd_name)
        return super().get_command(ctx, cmd_name)

    def load_all(self) -> Self:
        """Import every command, into ``commands``."""
        for name, entry in self._later.items():
            self.add_command(entry.load(), name)
        self._later.clear()
        return self


class GroupWithDefault(click.Group):
    """``laminar savepoint TARGET`` is ``laminar savepoint take TARGET``.

    Args:
        default: the command that is meant if none is named.
        more: arguments of ``click.Group``.
    """

    def __init__(self, *args: Any, default: str, **more: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **more)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default unless a command or help is given."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
