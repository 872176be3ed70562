"""Retention policies as users write them: options, a JSON or TOML file, or Python."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, ValidationError

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.options import NONE, Flag, Options, problem_of
from laminar_core.records.record import Count, JsonObject, Positive
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.units import Duration, duration_ms


class RetentionConfig(Options):
    """A retention policy. A checkpoint stays if any rule keeps it; see ``docs/retention.md``."""

    keep_last: Positive = 3
    """Number of newest restorable checkpoints to keep."""
    hourly: Count = 0
    """Keep the newest checkpoint of each of this many hours."""
    daily: Count = 0
    """Keep the newest checkpoint of each of this many days (UTC)."""
    weekly: Count = 0
    """Keep the newest checkpoint of each of this many weeks (from Monday)."""
    max_age: Annotated[Duration | None, NONE] = None
    """Delete checkpoints that are older than this."""
    min_kept: Positive = 1
    """Number of newest restorable checkpoints to keep at any age."""
    savepoints: Literal["keep", "like-others"] = "keep"
    """keep: checkpoints that were taken for a savepoint stay, if they are on the timeline;
    like-others: they are treated like others.
    """
    runs: Literal["all", "announced"] = "all"
    """The runs to whose checkpoints the policy applies. announced: only those that were started
    without an option for retention, which is recorded in their claim.
    """
    unreadable: Literal["report", "delete"] = "report"
    """Old checkpoints whose manifest cannot be read: only report them, or delete them after the
    quarantine.
    """
    left_overs: Annotated[Literal["report", "delete"], Flag("--left-overs", ("--orphans",))] = (
        Field(default="delete", validation_alias=AliasChoices("left_overs", "orphans"))
    )
    """Left-over files, which no manifest names: only report them, or delete them after the
    quarantine.
    """
    quarantine: Duration = "1 day"
    """Time between finding a left-over file (or an unreadable manifest) and deleting it."""
    history_keep: Annotated[Count | None, NONE] = None
    """Number of ended attempts whose records are kept in addition to existing checkpoints; none:
    all.
    """
    history_max_age: Annotated[Duration | None, NONE] = None
    """Delete the records of ended attempts that are older than this."""

    @classmethod
    def default(cls) -> Self:
        """Return the policy that ``laminar run`` applies if none is given."""
        return cls(
            keep_last=10,
            hourly=24,
            daily=7,
            savepoints="like-others",
            runs="announced",
            left_overs="report",
        )

    def announcement(self) -> JsonObject | None:
        """Return the policy for the claim to announce; None unless it is for announced runs."""
        return self.model_dump() if self.runs == "announced" else None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a policy from a ``.toml`` or ``.json`` file.

        Raises:
            ConfigurationError: there is no such file, or it is no policy.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                ErrorCode.NO_SUCH_PATH, f"{path} cannot be read: {error}"
            ) from error
        try:
            if path.suffix.lower() == ".toml":
                return cls.model_validate(tomllib.loads(text))
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise _invalid(f"{path} is not a retention policy: {problem_of(error, cls)}") from error
        except (ValueError, RecursionError) as error:
            raise _invalid(f"{path} is not valid TOML: {error}") from error

    def policy(self) -> RetentionPolicy:
        """Return the policy for the protocol, with durations in milliseconds.

        Raises:
            ConfigurationError: a duration is invalid.
        """
        return RetentionPolicy(
            keep_last=self.keep_last,
            hourly=self.hourly,
            daily=self.daily,
            weekly=self.weekly,
            max_age_ms=_optional_ms(self.max_age),
            min_kept=self.min_kept,
            keep_savepoints=self.savepoints == "keep",
            only_announced=self.runs == "announced",
            delete_unreadable=self.unreadable == "delete",
            delete_left_overs=self.left_overs == "delete",
            quarantine_min_ms=duration_ms(self.quarantine),
            history_keep=self.history_keep,
            history_max_age_ms=_optional_ms(self.history_max_age),
        )


def _optional_ms(duration: Duration | None) -> int | None:
    return None if duration is None else duration_ms(duration)


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
