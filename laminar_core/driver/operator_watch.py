"""Put the workers' reports about operators together, and compare them with earlier ones."""

from collections.abc import Mapping
from dataclasses import dataclass

from laminar_core.link.messages import OperatorWork, Progress
from laminar_core.records.operator_numbers import OperatorNumbers


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of an operator in one worker, between two of its reports."""

    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    busy_share: float = 0.0
    backpressured_share: float = 0.0


class OperatorWatch:
    """The numbers of all operators since the last look.

    A worker in a long function reports nothing meanwhile. Its rates stay those of its last reports.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Progress] = {}
        self._rates: dict[int, dict[str, Rates]] = {}

    def look(self, reports: Mapping[int, Progress]) -> dict[str, OperatorNumbers]:
        """Return the numbers by operator.

        ``reports`` are the newest ones of the workers that have operators.
        """
        for worker, report in reports.items():
            before = self._seen.get(worker)
            if before is not None and report.at_ms > before.at_ms:
                self._rates[worker] = _rates(before, report)
            self._seen[worker] = report
        names = dict.fromkeys(name for report in self._seen.values() for name in report.operators)
        return {name: self._numbers(name) for name in names}

    def _numbers(self, name: str) -> OperatorNumbers:
        work = [r.operators[name] for r in self._seen.values() if name in r.operators]
        rates = [found[name] for found in self._rates.values() if name in found]
        queued = [each.queued_batches for each in work if each.queued_batches is not None]
        totals = OperatorNumbers(
            rows_in=sum(each.rows_in for each in work),
            rows_out=sum(each.rows_out for each in work),
            busy_ms=round(sum(each.busy_ms for each in work), 1),
            backpressured_ms=round(sum(each.backpressured_ms for each in work), 1),
            queued_batches=sum(queued) if queued else None,
            rows_expired=sum(each.rows_expired for each in work),
        )
        if len(rates) < len(work):
            return totals
        return totals.model_copy(
            update={
                "rows_in_per_s": round(sum(each.rows_in_per_s for each in rates), 1),
                "rows_out_per_s": round(sum(each.rows_out_per_s for each in rates), 1),
                "busy_share": max(each.busy_share for each in rates),
                "backpressured_share": max(each.backpressured_share for each in rates),
            }
        )


def _rates(before: Progress, now: Progress) -> dict[str, Rates]:
    nothing, took_ms = OperatorWork(), now.at_ms - before.at_ms
    found: dict[str, Rates] = {}
    for name, work in now.operators.items():
        earlier = before.operators.get(name, nothing)
        found[name] = Rates(
            rows_in_per_s=1000 * (work.rows_in - earlier.rows_in) / took_ms,
            rows_out_per_s=1000 * (work.rows_out - earlier.rows_out) / took_ms,
            busy_share=_share(work.busy_ms - earlier.busy_ms, took_ms),
            backpressured_share=_share(work.backpressured_ms - earlier.backpressured_ms, took_ms),
        )
    return found


def _share(part_ms: float, of_ms: float) -> float:
    return round(min(max(part_ms / of_ms, 0.0), 1.0), 4)
