"""The setup of Spark, as far as settings and Spark itself tell it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """The setup of Spark, as far as it is known."""

    master: str
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    slots: int | None = None
    """Tasks that it can run at once now; None: that is not known."""

    @property
    def on_one_host(self) -> bool:
        """Whether driver and workers share a host."""
        return self.master.startswith("local")

    def is_on(self, setting: str) -> bool:
        """Return whether a setting that is off by default is on."""
        return self.settings.get(setting, "").strip().lower() == "true"

    def number(self, setting: str, default: int | None = None) -> int | None:
        """Return a setting that is a number; what is none is left to Spark to refuse."""
        text = self.settings.get(setting, "").strip()
        return int(text) if text.isdecimal() else default
