"""The systems that ``make peers`` gets: which of them are here, and how they are started."""

import os
from pathlib import Path

import click

PEERS = Path(__file__).parents[1] / "build" / "peers"


def is_there(peer: str, benchmark: str) -> bool:
    """Return whether a peer is here; if it is not, say so, and why."""
    if (PEERS / peer).is_dir():
        return True
    absent = PEERS / f"{peer}.absent"
    why = absent.read_text().strip() if absent.exists() else "make peers gets it"
    click.echo(f"{benchmark}: without {peer}: {why}", err=True)
    return False


def python_environment(peer: str, threads: int) -> dict[str, str]:
    """Return the variables of a Python program that imports a peer."""
    ours = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(PEERS / peer), *([ours] if ours else [])])
    return os.environ | {"PYTHONPATH": path, "POLARS_MAX_THREADS": str(threads)}
