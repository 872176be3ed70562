"""``python -m verification forgeries``: run every command that reads a store on forged ones.

Each command has to end in time and in memory, with success or with an error of Laminar's. They run
in a process of their own under a memory limit, so that neither a hang nor an abort ends the
campaign: the process is killed, the seed is noted, and a new process goes on.
"""

import io
import json
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click
import psutil

from laminar_core.testing.simulation import JOB
from verification.commands.seed_options import seed_options
from verification.forged_stores import HonestStore, forge_store, make_honest_store

COUNT = 20
MEMORY_BYTES = 2 << 30
"""Memory that a command may take beyond the use of its process at the start."""
TIME_S = 60.0
"""Time limit of one command; most take less than a tenth of a second."""
_EXPECTED_CODES = frozenset(range(7))
_SERVE = "from verification.commands.forgeries import serve; serve()"
_SAID_MAX = 2_000
_TARGET = """
from verification.corruption_campaign import PARALLELISM, windows_job

def pipeline():
    return windows_job(PARALLELISM).pipeline
"""


@dataclass(frozen=True, slots=True)
class ForgedAnswer:
    """The answer of one command to a forged store; ``problem`` is None if it is acceptable."""

    seed: int
    command: str
    changes: tuple[str, ...]
    code: int | None
    problem: str | None


def commands(honest: HonestStore, place: Path) -> list[list[str]]:
    """Return every command that reads a store, for the forged one at ``place``."""
    store, job = ["--store", str(place / "store")], ["--job", JOB]
    savepoints, target = place / "savepoints", str(honest.place / "job.py")
    from_savepoint = ["--from-savepoint", str(savepoints / "one")]
    older, newest = str(honest.older_id), str(honest.newest_id)
    of_job = [
        ["status"],
        ["top", "--once"],
        ["checkpoints", "list", "--all"],
        ["checkpoints", "show"],
        ["checkpoints", "show", older],
        ["checkpoints", "verify"],
        ["checkpoints", "verify", "--all"],
        ["checkpoints", "read", "--limit", "3"],
        ["checkpoints", "read", newest, "--inflight"],
        ["checkpoints", "diff", older, newest],
        ["audit", "list"],
        ["audit", "verify"],
        ["audit", "show", "1"],
        ["control", "list"],
        ["drills", "list"],
        ["retention", "status"],
        ["retention", "plan", "--keep-last", "1", "--history-keep", "1", "--verify"],
    ]
    return [
        ["jobs", *store],
        ["jobs", *store, "--json"],
        *([*words, *store, *job] for words in of_job),
        *([*words, *store, *job, "--json"] for words in of_job),
        ["savepoint", "list", str(savepoints)],
        ["savepoint", "show", str(savepoints / "one"), "--json"],
        ["savepoint", "verify", str(savepoints / "one")],
        ["recover", target, "--dry-run", *store, *job, "--workers", "2"],
        ["recover", target, "--dry-run", "--json", *store, *job, "--restore", older],
        ["recover", target, "--dry-run", *store, "--job", "imported", *from_savepoint],
        ["savepoint", "export", newest, str(place / "exported"), *store, *job],
    ]


def try_forgeries(seeds: range) -> Iterator[ForgedAnswer]:
    """Answer of each command to each forged store."""
    with tempfile.TemporaryDirectory(prefix="laminar-forgeries-") as folder:
        honest = make_honest_store(Path(folder) / "honest")
        (honest.place / "job.py").write_text(_TARGET)
        process = _Commands()
        try:
            for seed in seeds:
                yield from _try_forgery(process, honest, Path(folder) / str(seed), seed)
        finally:
            process.end()


def _try_forgery(
    process: "_Commands", honest: HonestStore, place: Path, seed: int
) -> Iterator[ForgedAnswer]:
    forged = forge_store(honest, place, seed)
    for words in commands(honest, place):
        code, problem = process.run(words)
        said = " ".join(words).replace(str(place), "…").replace(str(honest.place), "…")
        yield ForgedAnswer(seed, said, forged.changes, code, problem)
    shutil.rmtree(place)


class _Commands:
    """The process that runs the commands, one after the other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: list[str]) -> tuple[int | None, str | None]:
        """Exit code, and what is wrong with the answer if it is none."""
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(words)}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], TIME_S)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.end()
            return None, f"the process ended ({process.returncode})" if ready else "it hangs"
        code, said = json.loads(line)
        wrong = code not in _EXPECTED_CODES or "Traceback" in said or "not expected" in said
        return code, said if wrong else None

    def end(self) -> None:
        """Kill the process, which holds nothing."""
        if self._process is not None:
            self._process.kill()
            with self._process:  # Waits, and closes the pipes.
                self._process = None


def _start() -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )


def serve() -> None:
    """Run each command that comes in, in memory that ends; one line of JSON answers it."""
    from laminar_core.cli import main as entry  # noqa: PLC0415 - late, in this process alone

    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    answers = sys.stdout
    for line in sys.stdin:
        sys.argv = ["laminar", *json.loads(line)]
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        code = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                entry()
            except SystemExit as end:
                code = int(end.code or 0)
        err.seek(0)
        print(json.dumps([code, err.read()[-_SAID_MAX:]]), file=answers, flush=True)


@click.command()
@seed_options(COUNT)
def forgeries(*, count: int, first: int, as_json: bool) -> None:
    """Forge N stores, and read each with every command, in bounded memory and time.

    The exit code is 1 if a command hangs, dies, or answers with anything but success or an error
    of Laminar's.
    """
    report(range(first, first + count), as_json=as_json)


def report(seeds: range, *, as_json: bool) -> None:
    """Try the seeds and print unacceptable answers; exit with 1 if there are any."""
    codes: dict[str, int] = {}
    wrong = 0
    for answer in try_forgeries(seeds):
        codes[str(answer.code)] = codes.get(str(answer.code), 0) + 1
        if answer.problem is None:
            continue
        wrong += 1
        if as_json:
            click.echo(json.dumps({"event": "forgery", **_as_dict(answer)}))
        else:
            click.echo(f"seed {answer.seed}: laminar {answer.command}: {answer.problem}")
            click.echo(f"  {'; '.join(answer.changes)}")
    counted = dict(sorted(codes.items()))
    if as_json:
        said = {"forgeries": len(seeds), "exit_codes": counted, "problems": wrong}
        click.echo(json.dumps({"event": "summary", **said}))
    else:
        each = ", ".join(f"{count:,} times {code}" for code, count in counted.items())
        click.echo(f"{len(seeds):,} forged stores; exit codes: {each}; {wrong:,} problems")
    if wrong:
        raise SystemExit(1)


def _as_dict(answer: ForgedAnswer) -> dict[str, object]:
    return {
        "seed": answer.seed,
        "command": answer.command,
        "changes": list(answer.changes),
        "code": answer.code,
        "problem": answer.problem,
    }
