"""``python -m tests.spark.kill_campaign --minutes 60 --seed 1``: figures as JSON in the end."""

import argparse
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

from laminar_core.runtime.clock import SystemClock
from tests.spark.kill_campaign.campaign import Campaign
from tests.spark.kill_campaign.cells import Kind, rounds


def main() -> int:
    """Attack for so long; exit with 1 if anything was not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_campaign")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), default=list(Kind))
    parser.add_argument("--folder", type=Path, help="kept; rounds that went well are deleted")
    asked = parser.parse_args()
    folder = asked.folder or Path(mkdtemp(prefix="laminar-kill-campaign-"))
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    end_ms = began_ms + 60_000 * asked.minutes

    def say(line: str) -> None:
        now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        print(f"{now:%H:%M:%S} {line}", file=sys.stderr, flush=True)  # noqa: T201

    for number in (signal.SIGINT, signal.SIGTERM):  # So that nothing of a round stays behind.
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    campaign = Campaign(folder, asked.seed, say)
    figures = campaign.run(
        rounds(asked.seed, tuple(asked.kinds)), lambda: clock.monotonic_ms() < end_ms
    )
    print(json.dumps(figures.as_json(clock.monotonic_ms() - began_ms), indent=1))  # noqa: T201
    return 1 if figures.failures else 0


if __name__ == "__main__":
    sys.exit(main())
