"""``python -m tests.spark.kill_campaign --minutes 60 --seed 1``: prints its figures in the end."""

import argparse
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

from laminar_core.host.clock import SystemClock
from tests.spark.jobs_under_test import ROOT
from tests.spark.kill_campaign.campaign import Campaign
from tests.spark.kill_campaign.cells import Kind, rounds
from tests.spark.kill_campaign.interrupt import Interrupt

FIGURES = ROOT / "build" / "kill-campaign.json"


def say(line: str) -> None:
    """Print a line with the time to stderr; the figures alone go to stdout."""
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    print(f"{now:%H:%M:%S} {line}", file=sys.stderr, flush=True)  # noqa: T201


def main() -> int:
    """Attack for so long, and print the figures however that ends.

    Returns:
        0; 1 if a round failed; 128 and the signal's number (130 for Ctrl-C) after an interruption.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_campaign")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), default=list(Kind))
    parser.add_argument("--folder", type=Path, help="of the rounds; only those that failed stay")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="the same figures as JSON")
    asked = parser.parse_args()
    folder = asked.folder or Path(mkdtemp(prefix="laminar-kill-campaign-"))
    asked.figures.parent.mkdir(parents=True, exist_ok=True)
    interrupt = Interrupt()
    interrupt.listen(say)
    campaign = Campaign(folder, asked.seed, say, interrupt=interrupt)
    figures, clock = campaign.figures, SystemClock()
    began_ms = clock.monotonic_ms()

    def may_go_on() -> bool:
        figures.duration_ms = clock.monotonic_ms() - began_ms
        asked.figures.write_text(json.dumps(figures.as_json(), indent=1) + "\n")
        return figures.duration_ms < 60_000 * asked.minutes

    try:
        campaign.run(rounds(asked.seed, tuple(asked.kinds)), may_go_on)
    finally:  # Also if the campaign itself is broken.
        may_go_on()
        print(figures.as_text(), flush=True)  # noqa: T201
        say(f"the figures as JSON: {asked.figures}")
    if figures.failures:
        say(f"what the failed rounds left: {folder}")
    elif not asked.folder:
        shutil.rmtree(folder, ignore_errors=True)
    return interrupt.exit_code or (1 if figures.failures else 0)


if __name__ == "__main__":
    sys.exit(main())
