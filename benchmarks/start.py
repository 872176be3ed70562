"""How long the command line takes to start."""

import sys

from benchmarks.kept import timed
from benchmarks.result import Result

ROUNDS = 7
TARGET_S = 0.3
_IMPORT = "import laminar_core.cli.main"


def start() -> list[Result]:
    """Import of the command line, and its shortest command, each in a process of its own."""
    commands = {
        "import": [sys.executable, "-c", _IMPORT],
        "version": [sys.executable, "-m", "laminar_core.cli", "--version"],
        "python": [sys.executable, "-c", ""],
    }
    for command in commands.values():  # Compiled modules are in their places.
        timed(command)
    rounds = [{name: timed(words)[1] for name, words in commands.items()} for _ in range(ROUNDS)]
    results: list[Result] = []
    for name in commands:
        target = None if name == "python" else TARGET_S
        walls = [each[name].wall_s for each in rounds]
        cpus = [each[name].cpu_s for each in rounds]
        results.append(Result.of_rounds(f"start_{name}", walls, "s", "lower", target))
        results.append(Result.of_rounds(f"start_{name}_cpu", cpus, "s of CPU", "lower", target))
    return results
