"""The recovery sensor without Dagster: real facts of the store, the real decision, each recorded.

Its clock can be set forward. While a driver stands still that is no pretence: nothing in the store
changes, however long the sensor waits.
"""

from collections import Counter
from dataclasses import dataclass, field

from laminar_core.host.clock import Clock
from laminar_core.protocol.silence import LOOKS_MIN
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.decision import (
    Alarm,
    Leave,
    Recover,
    RecoveryFacts,
    decide_recovery,
)
from laminar_core.sensors.recovery.facts import Watched, read_recovery_facts
from laminar_core.store.checkpoint_store import CheckpointStore

PATIENCE_MS = 1_200_000
"""Longer than any limit of silence in the policy; a start may take ten minutes."""
_AGE_MAX_MS = 600_000


@dataclass
class Sensor:
    """Looks at one job, tick after tick."""

    store: CheckpointStore
    clock: Clock
    decisions: Counter[str] = field(default_factory=Counter[str])
    _watched: Watched = field(default_factory=Watched)
    _ahead_ms: int = 0
    _policy: AlertPolicy = field(default_factory=AlertPolicy)

    def look(self) -> tuple[RecoveryFacts, Leave | Alarm | Recover]:
        """One tick."""
        now_ms = self.clock.now_ms() + self._ahead_ms
        facts, self._watched = read_recovery_facts(self.store, self._watched, now_ms, _AGE_MAX_MS)
        decided = decide_recovery(facts, self._policy)
        self.decisions[name_of(decided)] += 1
        return facts, decided

    def begin_anew(self) -> None:
        """Forget what was seen, and the time that was only pretended."""
        self._watched, self._ahead_ms = Watched(), 0

    def look_until_silent(self) -> Leave | Alarm | Recover:
        """Look as often as a silence needs to be believed, over a long time by its own clock."""
        _, decided = self.look()
        for _ in range(LOOKS_MIN + 1):
            self._ahead_ms += PATIENCE_MS
            _, decided = self.look()
        return decided


def name_of(decided: Leave | Alarm | Recover) -> str:
    """Return the decision in one word, for counting."""
    if isinstance(decided, Recover):
        return "take-over" if decided.running_driver == "take_over" else "recover"
    return "alarm" if isinstance(decided, Alarm) else "leave"
