"""Which streams this deployment runs, and how."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "build" / "demo"


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One streaming job as Dagster runs it. The store is a resource, shared by all of them.

    ``name`` is the job's name in the store and the prefix of its asset keys. ``arguments`` go to
    the pipeline function of ``program``. ``owner`` is an e-mail address or ``team:NAME``;
    ``laminar`` is what starts the command line, if not this very Python.
    """

    name: str
    program: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    workers: int = 2
    checkpoint_interval: str = "10 seconds"
    restarts_max: int = 3
    owner: str = "team:streaming"
    description: str = ""
    laminar: Sequence[str] = (sys.executable, "-m", "laminar_core.cli")

    def command(self, store_uri: str) -> list[str]:
        """What starts the driver; it writes one JSON object per event to standard output."""
        settings = [word for item in self.arguments.items() for word in ("--set", "=".join(item))]
        return [
            *(*self.laminar, "run", str(self.program), *settings),
            *("--store", store_uri, "--job", self.name, "--workers", str(self.workers)),
            *("--checkpoint-interval", self.checkpoint_interval, "--json"),
        ]

    @property
    def code_version(self) -> str:
        """Changes when the program or its arguments do; the empty program is one that is gone."""
        program = self.program.read_bytes() if self.program.exists() else b""
        arguments = repr(sorted(self.arguments.items())).encode()
        return hashlib.sha256(program + arguments).hexdigest()[:12]


PAYMENTS = StreamSpec(
    name="payments",
    program=ROOT / "jobs" / "payments.py",
    arguments={
        "input": str(DEMO / "input"),
        "output": str(DEMO / "output"),
        "rows_per_second": "600000",
    },
    checkpoint_interval="1 second",
    owner="team:payments",
    description="Payments per merchant in five-minute windows; `make demo` writes the input.",
)

STREAMS = (PAYMENTS,)
