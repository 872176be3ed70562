"""Dry runs: the program itself reports what a start would do, without Spark and without changes."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from laminar_core.orchestration.launching.restore_choice import refused
from laminar_core.orchestration.spec import StreamSpec

_TIMEOUT_S = 6 * 3600
"""Time limit: a dry run reads the whole checkpoint or savepoint."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The report of ``laminar recover --dry-run --json``."""

    report: Mapping[str, Any]

    @property
    def problems(self) -> list[str]:
        """All problems that prevent a start."""
        return [str(problem["message"]) for problem in self.report["problems"]]

    def __str__(self) -> str:
        """Return the result as one sentence."""
        job, checkpoint = self.report["job"], self.report.get("checkpoint")
        match self.report["verdict"]:
            case "restore" if checkpoint is not None:
                return f"job {job} would continue from checkpoint {checkpoint['checkpoint_id']}"
            case "fresh":
                return f"job {job} would start from nothing"
            case _:
                return f"job {job} would be refused: {'; '.join(self.problems)}"

    def metadata(self) -> dict[str, Any]:
        """Return the metadata for the run that requested it."""
        checkpoint: Mapping[str, Any] = self.report.get("checkpoint") or {}
        metadata: dict[str, Any] = {
            "verdict": self.report["verdict"],
            "what": str(self),
            "from_checkpoint": checkpoint.get("checkpoint_id"),
            "checkpoint_age_s": _seconds(checkpoint.get("age_ms")),
            "rows_to_replay": self.report.get("rows_to_replay"),
            "workers": self.report.get("workers"),
            "owner": self.report.get("owner"),
            "report": dg.MetadataValue.json(dict(self.report)),
        }
        return {name: value for name, value in metadata.items() if value is not None}

    def require_start(self) -> None:
        """Refuse what the program would refuse.

        Raises:
            dagster.Failure: something is in the way; the report is with it.
        """
        if self.report["verdict"] == "refuse":
            raise dg.Failure(str(self), metadata=self.metadata(), allow_retries=False)


def dry_run(
    spec: StreamSpec, store_uri: str, env: Mapping[str, str], words: Sequence[str]
) -> DryRun:
    """Run the stream's program for a dry run; the job may be running meanwhile.

    Raises:
        dagster.Failure: it failed; with the program's message.
    """
    command = spec.dry_run_command(store_uri, words)
    try:
        answer = subprocess.run(  # noqa: S603 - the command is the stream's own
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise refused(f"the dry run has not ended within {_TIMEOUT_S} s") from error
    try:
        report = json.loads(answer.stdout)
    except ValueError as error:
        words_left = answer.stderr.strip().splitlines() or ["it printed nothing"]
        why = f"the dry run ended with exit code {answer.returncode}: {words_left[-1]}"
        raise refused(why) from error
    return DryRun(report)


def _seconds(duration_ms: float | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000
