"""The streams that this deployment runs."""

from pathlib import Path

from laminar_core.orchestration.spec import CheckpointPolicy, StreamSpec

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "build" / "demo"

PAYMENTS = StreamSpec(
    name="payments",
    program=ROOT / "jobs" / "payments.py",
    arguments={
        "input": str(DEMO / "input"),
        "output": str(DEMO / "output"),
        "rows_per_second": "600000",
    },
    checkpoints=CheckpointPolicy(interval="1 second"),
    owner="team:payments",
    description="Payments per merchant in five-minute windows; `make demo` writes the input.",
)

LOOP = StreamSpec(
    name="loop",
    program=ROOT / "jobs" / "loop.py",
    arguments={"input": str(DEMO / "input"), "output": str(DEMO / "settled")},
    checkpoints=CheckpointPolicy(interval="1 second"),
    owner="team:payments",
    description="Payments that failed are charged again until they are settled, in a loop.",
)

SLIPPAGE = StreamSpec(
    name="slippage",
    program=ROOT / "jobs" / "slippage.py",
    arguments={
        "input": "datagen",
        "output": str(DEMO / "slippage"),
        "rows": "5000000",
        "rows_per_second": "50000",
    },
    checkpoints=CheckpointPolicy(interval="1 second"),
    owner="team:trading",
    description="Slippage of generated trades against the last quote, per symbol and minute.",
)

STREAMS = (PAYMENTS, LOOP, SLIPPAGE)
