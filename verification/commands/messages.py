"""``python -m verification messages``: hostile messages for every format that Laminar reads.

They are decoded in a process of their own under a memory limit, because a fault of native code ends
its process. If that happens, the seed is noted and a new process goes on behind it.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import click
import psutil

from verification.commands.seed_options import seed_options
from verification.hostile_messages import decoders, draw_batch, problem_of

COUNT = 200
MEMORY_BYTES = 2 << 30
"""Memory that decoding may take beyond the use of its process at the start."""
TIME_S = 600.0
"""Time limit of one process, which decodes ``SEEDS_PER_PROCESS`` batches of each format."""
SEEDS_PER_PROCESS = 200
_DECODE = "from verification.commands.messages import decode; decode()"
_BEGUN, _PROBLEM = "begun", "problem"


@dataclass(frozen=True, slots=True)
class MessageProblem:
    """A batch that a decoder was wrong about, or did not survive."""

    seed: int
    problem: str


@click.command()
@seed_options(COUNT)
def messages(*, count: int, first: int, as_json: bool) -> None:
    """Decode N batches of hostile messages with each format.

    Each message must be a row or a letter, for what it is and not for its neighbours, and the
    process must survive. The exit code is 1 if one is not.
    """
    problems = list(try_messages(range(first, first + count)))
    for problem in problems:
        again = f"again: python -m verification messages 1 --from {problem.seed}"
        said = {"event": "problem", "seed": problem.seed, "problem": problem.problem}
        click.echo(
            json.dumps(said) if as_json else f"seed {problem.seed}: {problem.problem}; {again}"
        )
    if as_json:
        said = {"batches": count, "formats": len(decoders()), "problems": len(problems)}
        click.echo(json.dumps({"event": "summary", **said}))
    else:
        click.echo(f"{count:,} batches of {len(decoders())} formats: {len(problems)} problems")
    if problems:
        raise SystemExit(1)


def try_messages(seeds: range) -> Iterator[MessageProblem]:
    """Decode one batch of each format per seed; yield what went wrong."""
    left = seeds
    while left:
        part = left[:SEEDS_PER_PROCESS]
        begun, problems, ending = _decoded(part)
        yield from problems
        if ending is None:
            left = left[len(part) :]
        else:
            yield MessageProblem(begun, ending)
            left = range(begun + 1, left.stop)


def _decoded(seeds: range) -> tuple[int, list[MessageProblem], str | None]:
    """Return the last seed that was begun, problems, and how the process ended if not well."""
    command = [sys.executable, "-c", _DECODE, str(seeds.start), str(len(seeds)), str(MEMORY_BYTES)]
    try:
        finished = subprocess.run(  # noqa: S603 - ourselves
            command, check=False, capture_output=True, text=True, timeout=TIME_S
        )
    except subprocess.TimeoutExpired as expired:
        printed = (expired.stdout or b"").decode()
        return (*_read(printed, seeds), f"not done after {TIME_S:.0f} s")
    is_well = finished.returncode == 0
    last = finished.stderr.strip().splitlines()[-1:]
    ending = None if is_well else f"exit code {finished.returncode} {' '.join(last)}"
    return (*_read(finished.stdout, seeds), ending)


def _read(printed: str, seeds: range) -> tuple[int, list[MessageProblem]]:
    begun, problems = seeds.start, list[MessageProblem]()
    for line in printed.splitlines():
        kind, seed, text = line.split(" ", 2)
        begun = int(seed)
        problems += [MessageProblem(begun, text)] if kind == _PROBLEM else []
    return begun, problems


def decode() -> None:
    """Decode batches under a memory limit; the arguments are first seed, count and bytes."""
    first, count, memory_bytes = map(int, sys.argv[1:])
    limit = psutil.Process().memory_info().vms + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tried = decoders()
    for seed in range(first, first + count):
        for name, (decoder, draw) in tried.items():
            print(_BEGUN, seed, name, flush=True)  # noqa: T201 - the parent reads it
            problem = problem_of(decoder, draw_batch(Random(f"{name} {seed}"), draw))  # noqa: S311
            if problem is not None:
                print(_PROBLEM, seed, f"{name}: {problem!r}", flush=True)  # noqa: T201
