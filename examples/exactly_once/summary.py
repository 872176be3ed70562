"""The results of the demo: as JSON, and on one screen."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.exactly_once.faults import Kill
from examples.oracle import Comparison
from laminar_core.store.summaries import CheckpointSummary

CHECKPOINTS_MIN = 10
_COLUMNS = 3
_TIMING_NAMES = {
    "generate_s": "writing the payments",
    "stream_s": "streaming job, start to end",
    "batch_s": "batch query and comparison",
}


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """Everything that is shown. ``flowing_s`` is from the first row to the end of the job."""

    events: int
    events_late: int
    rows_per_second_paced: int
    flowing_s: float
    timings: dict[str, float]
    checkpoints: tuple[CheckpointSummary, ...]
    kills: tuple[Kill, ...]
    kills_planned: int
    comparison: Comparison
    dagster_run_id: str

    @property
    def problems(self) -> list[str]:
        """Reasons why this demo proves nothing; empty if there are none."""
        survived = sum(kill.recovery_ms is not None for kill in self.kills)
        problems: list[str] = []
        if not self.comparison.exact:
            problems.append("the output is not exactly that of the batch query")
        if len(self.checkpoints) < CHECKPOINTS_MIN:
            problems.append(f"only {len(self.checkpoints)} checkpoints completed")
        if survived < self.kills_planned:
            problems.append(f"only {survived} of {self.kills_planned} kills were done and survived")
        return problems

    def to_json(self) -> dict[str, Any]:
        """Return the contents of ``summary.json``; names end in the unit of durations."""
        return {
            "exact": self.comparison.exact,
            "problems": self.problems,
            "differences": list(self.comparison.differences),
            "events": self.events,
            "events_late": self.events_late,
            "events_per_second": round(self.events / self.flowing_s),
            "rows_per_second_paced": self.rows_per_second_paced,
            "output_rows": self.comparison.rows_found,
            "output_rows_expected": self.comparison.rows_expected,
            "timings": {"flowing_s": round(self.flowing_s, 3), **self.timings},
            "checkpoints": [asdict(checkpoint) for checkpoint in self.checkpoints],
            "kills": [asdict(kill) | {"recovery_ms": kill.recovery_ms} for kill in self.kills],
            "dagster_run_id": self.dagster_run_id,
        }


def show(summary: DemoSummary, console: Console) -> None:
    """Print the summary on one screen."""
    parts: list[RenderableType] = [
        _facts(summary),
        Text(),
        _kills(summary),
        Text(),
        _checkpoints(summary),
        Text(),
        *_verdict(summary),
    ]
    console.print(Panel(Group(*parts), title="Laminar demo", border_style="blue", padding=(0, 1)))


def _facts(summary: DemoSummary) -> Table:
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        "events", f"{summary.events:,} in Parquet files, {summary.events_late:,} of them late"
    )
    facts.add_row(
        "events/s",
        f"{summary.events / summary.flowing_s:,.0f} over {summary.flowing_s:.1f} s, outages "
        f"included; the source is paced to {summary.rows_per_second_paced:,} a second",
    )
    for name, seconds in summary.timings.items():
        facts.add_row(f"{seconds:.1f} s", _TIMING_NAMES.get(name, name))
    return facts


def _kills(summary: DemoSummary) -> Table:
    kills = Table(box=None, pad_edge=False, title="SIGKILL", title_justify="left")
    for name in ("victim", "pid", "after events", "data flowed again after"):
        kills.add_column(name, justify="left" if name == "victim" else "right")
    for kill in summary.kills:
        again = "never" if kill.recovery_ms is None else f"{kill.recovery_ms / 1000:.2f} s"
        kills.add_row(kill.victim, str(kill.pid), f"{kill.rows_in:,}", again)
    return kills


def _checkpoints(summary: DemoSummary) -> Table:
    """Side by side, read downwards."""
    grid = Table(box=None, pad_edge=False, title="Checkpoints", title_justify="left")
    for _ in range(_COLUMNS):
        for name in ("id", "ms", "KiB", "mode"):
            grid.add_column(name, justify="left" if name == "mode" else "right")
    cells = [_cells(checkpoint) for checkpoint in summary.checkpoints]
    height = -(-len(cells) // _COLUMNS)
    for row in range(height):
        grid.add_row(*(cell for part in cells[row::height] for cell in part))
    return grid


def _cells(checkpoint: CheckpointSummary) -> tuple[str, str, str, str]:
    assert checkpoint.duration_ms is not None
    assert checkpoint.size_bytes is not None
    kind = "" if checkpoint.kind in {None, "periodic"} else f" {checkpoint.kind}"
    return (
        str(checkpoint.checkpoint_id),
        f"{checkpoint.duration_ms:.0f}",
        f"{checkpoint.size_bytes / 1024:,.0f}",
        f"{checkpoint.mode}{kind}",
    )


def _verdict(summary: DemoSummary) -> list[Text]:
    comparison = summary.comparison
    if not summary.problems:
        rows = f"all {comparison.rows_expected:,} rows"
        return [Text(f"EXACT: {rows} are those of the Spark batch query", style="bold green")]
    lines = [Text(f"FAILED: {problem}", style="bold red") for problem in summary.problems]
    return lines + [Text(f"  {difference}") for difference in comparison.differences]
