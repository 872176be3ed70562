"""Behaves like ``laminar drills run PROGRAM --set how=... --json``, as ``how`` says."""

# ruff: noqa: T201

import argparse
import os
import signal
import sys
from pathlib import Path

from laminar_core.records.drill import DrilledOperator, DrillRecord

parser = argparse.ArgumentParser()
parser.add_argument("words", nargs=2)
parser.add_argument("program")
parser.add_argument("--set", dest="settings", action="append")
parser.add_argument("--checkpoint", type=int, default=5)
parser.add_argument("--random", type=int)
parser.add_argument("--workers", type=int)
parser.add_argument("--reason")
parser.add_argument("--job")
options, _ = parser.parse_known_args()
settings = dict(setting.split("=") for setting in options.settings)
how, notes = settings["how"], Path(settings["notes"])
copy = Path(os.environ["TMPDIR"]) / "copy"
copy.write_text("of the checkpoint")
notes.write_text(f"{os.getpid()} {copy}\n")
print("restoring", file=sys.stderr, flush=True)
if how == "refuses":
    print("error: the job has no completed checkpoint to drill", file=sys.stderr)
    sys.exit(2)
if how == "breaks":
    print("error: KeyError: 'x'", file=sys.stderr)
    print("this is not expected: run again with `laminar --debug …`", file=sys.stderr)
    sys.exit(1)
if how == "mumbles":
    print('{"job": "payments", "nothing": "else"}')
    sys.exit(0)
if how == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
passed = how == "passes"
record = DrillRecord(
    job=options.job,
    number=7,
    outcome="passed" if passed else "failed",
    problems=() if passed else ("window restored 3 rows, its files have 4",),
    error_code=None if passed else "drill-failed",
    exit_code=0 if passed else 3,
    checkpoint_id=options.checkpoint if options.random is None else 2,
    workers_before=2,
    workers=options.workers,
    operators=(
        DrilledOperator(
            operator_id="window",
            rows_expected=4,
            rows_restored=4 if passed else 3,
            digest_expected="a",
            digest_restored="a",
        ),
    ),
    size_bytes=100,
    rows_read=20,
    completed_checkpoint_id=6,
    started_at_ms=1_700_000_000_000,
    duration_ms=1500.0,
    actor=os.environ["LAMINAR_ACTOR"],
    reason=f"{options.reason} in {os.environ['LAMINAR_RUN_ID']}",
)
print(record.model_dump_json(indent=1))
sys.exit(record.exit_code)
