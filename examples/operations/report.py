"""The results of the operations demo: on one screen, and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.operations.stage import Step
from examples.oracle import Comparison


@dataclass(frozen=True, slots=True)
class OperationsReport:
    """Every step, and the verdict. ``comparison`` is None if it did not come to that."""

    steps: tuple[Step, ...]
    steps_planned: int
    comparison: Comparison | None
    took_s: float

    @property
    def problems(self) -> list[str]:
        """Reasons why this demonstration proves nothing; empty if there are none."""
        problems = [f"{step.name}: {step.failed}" for step in self.steps if step.failed]
        left = self.steps_planned - len(self.steps)
        if left:
            problems.append(f"{left} steps were not reached")
        elif self.comparison is None:
            problems.append("the output was not compared")
        if self.comparison is not None and not self.comparison.exact:
            problems.append("the output is not exactly that of the batch query")
        return problems

    def to_json(self) -> dict[str, Any]:
        """Return the contents of ``summary.json``; durations are seconds."""
        found = self.comparison
        return {
            "exact": found is not None and found.exact,
            "problems": self.problems,
            "differences": list(found.differences) if found else [],
            "output_rows": found.rows_found if found else None,
            "output_rows_expected": found.rows_expected if found else None,
            "took_s": round(self.took_s, 1),
            "steps": [asdict(step) for step in self.steps],
        }


def show(report: OperationsReport, console: Console) -> None:
    """Print the report on one screen."""
    steps = Table(box=None, pad_edge=False, show_header=False)
    steps.add_column(justify="right")
    steps.add_column(ratio=1)
    for step in report.steps:
        style = "bold red" if step.failed else "bold"
        steps.add_row(f"{step.took_s:.1f} s", Text(step.name, style))
        for fact in (*step.saw, *([step.failed] if step.failed else [])):
            steps.add_row("", Text(fact, "red" if fact == step.failed else ""))
    body = Group(steps, Text(), *_verdict(report))
    console.print(Panel(body, title="Laminar operations", border_style="blue", padding=(0, 1)))


def _verdict(report: OperationsReport) -> list[Text]:
    took = f"{report.took_s:.0f} s in all"
    if report.problems or report.comparison is None:
        lines = [Text(f"FAILED: {problem}", "bold red") for problem in report.problems]
        differences = report.comparison.differences if report.comparison else ()
        return [*lines, *(Text(f"  {difference}") for difference in differences), Text(took)]
    rows = f"all {report.comparison.rows_expected:,} rows are those of the Spark batch query"
    return [Text(f"EXACT: {rows}", "bold green"), Text(took)]
