"""The results of a campaign, as numbers."""

from collections import Counter
from dataclasses import dataclass, field

from tests.spark.kill_campaign.cells import Act, Cell, Kind, Phase


@dataclass
class Figures:
    """Counts over all rounds. ``ended_by`` says what brought the stream back after an attack."""

    seed: int
    attacks: Counter[Cell] = field(default_factory=Counter[Cell])
    ended_by: Counter[str] = field(default_factory=Counter[str])
    decisions: Counter[str] = field(default_factory=Counter[str])
    generations: int = 0
    checkpoints: int = 0
    rounds: int = 0
    rounds_exact: int = 0
    failures: list[str] = field(default_factory=list[str])
    recovery_ms: list[float] = field(default_factory=list[float])
    """From a signal until a checkpoint completes again; one for each attack that was survived."""
    duration_ms: float = 0
    ended_with: str | None = None
    """The campaign's time, or the name of a signal; None: it goes on, or is itself broken."""

    @property
    def rounds_finished(self) -> int:
        """Rounds whose output was found exact, or that failed; one that was interrupted is none."""
        return self.rounds_exact + len(self.failures)

    def as_json(self) -> dict[str, object]:
        """Return everything that a reader or a program wants to see."""
        by_kind: dict[str, dict[str, dict[str, int]]] = {}
        for cell, count in sorted(self.attacks.items(), key=str):
            by_kind.setdefault(cell.kind, {}).setdefault(cell.phase, {})[cell.act] = count
        return {
            "seed": self.seed,
            "seconds": round(self.duration_ms / 1000),
            "ended_with": self.ended_with,
            "attacks": self.attacks.total(),
            "kills": self._acts(Act.KILL),
            "stops": self._acts(Act.STOP),
            "cells": len(self.attacks),
            "by_kind_and_phase": by_kind,
            "recoveries": len(self.recovery_ms),
            "back_by": dict(self.ended_by),
            "decisions": dict(self.decisions),
            "generations": self.generations,
            "checkpoints": self.checkpoints,
            "recovery_s": self._percentiles(),
            "rounds": self.rounds,
            "rounds_finished": self.rounds_finished,
            "output_exact": self.rounds_exact,
            "failures": self.failures,
        }

    def as_text(self) -> str:
        """Return the same for a reader, as lines."""
        attacks, finished = self.attacks.total(), self.rounds_finished
        kills, stops = self._acts(Act.KILL), self._acts(Act.STOP)
        times = ", ".join(f"{name} {seconds} s" for name, seconds in self._percentiles().items())
        seconds, ended_with = round(self.duration_ms / 1000), self.ended_with or "an error"
        return "\n".join(
            [
                f"seed {self.seed}: {seconds} s, ended with {ended_with}",
                f"attacks: {attacks} ({kills} kills, {stops} stops)",
                *self._table(),
                f"recoveries: {len(self.recovery_ms)} of {attacks}"
                + (f"; {times}" if times else ""),
                f"back by: {_listed(self.ended_by)}",
                f"decisions of the sensor: {_listed(self.decisions)}",
                f"rounds: {self.rounds} begun, {finished} finished, {len(self.failures)} failed",
                f"output: exact in {self.rounds_exact} of {finished} finished rounds",
                *(f"FAILED {failure}" for failure in self.failures),
            ]
        )

    def _acts(self, act: Act) -> int:
        return sum(count for cell, count in self.attacks.items() if cell.act is act)

    def _table(self) -> list[str]:
        """Return kills + stops, a line for each kind and a column for each phase."""
        rows = [["kills+stops", *Phase]]
        for kind in Kind:
            both = [[self.attacks[Cell(kind, phase, act)] for act in Act] for phase in Phase]
            rows.append([kind, *(f"{kills}+{stops}" for kills, stops in both)])
        return [f"  {name:<15}" + "".join(f"{text:>10}" for text in texts) for name, *texts in rows]

    def _percentiles(self) -> dict[str, float]:
        times = sorted(self.recovery_ms)
        if not times:
            return {}
        at = {"p50": 0.5, "p90": 0.9, "max": 1.0}
        last = len(times) - 1
        return {name: round(times[int(share * last)] / 1000, 1) for name, share in at.items()}


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
