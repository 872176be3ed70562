"""What a campaign came to, as numbers."""

from collections import Counter
from dataclasses import dataclass, field

from tests.spark.kill_campaign.cells import Cell


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
    """From a signal until a checkpoint completes again."""

    def as_json(self, duration_ms: float) -> dict[str, object]:
        """Return everything that a reader or a program wants to see."""
        by_kind: dict[str, dict[str, dict[str, int]]] = {}
        for cell, count in sorted(self.attacks.items(), key=str):
            by_kind.setdefault(cell.kind, {}).setdefault(cell.phase, {})[cell.act] = count
        acts = Counter[str]()
        for cell, count in self.attacks.items():
            acts[cell.act] += count
        return {
            "seed": self.seed,
            "minutes": round(duration_ms / 60_000, 1),
            "attacks": self.attacks.total(),
            "kills": acts["kill"],
            "stops": acts["stop"],
            "cells": len(self.attacks),
            "by_kind_and_phase": by_kind,
            "back_by": dict(self.ended_by),
            "decisions": dict(self.decisions),
            "generations": self.generations,
            "checkpoints": self.checkpoints,
            "recovery_s": self._percentiles(),
            "rounds": self.rounds,
            "output_exact": self.rounds_exact,
            "failures": self.failures,
        }

    def _percentiles(self) -> dict[str, float]:
        times = sorted(self.recovery_ms)
        if not times:
            return {}
        at = {"p50": 0.5, "p90": 0.9, "max": 1.0}
        last = len(times) - 1
        return {name: round(times[int(share * last)] / 1000, 1) for name, share in at.items()}
