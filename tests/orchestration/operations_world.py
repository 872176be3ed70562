"""Where the commands of the runbook are run: a store, a Dagster, and a driver, or none."""

import os
import re
import shlex
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import dagster as dg
from click.testing import CliRunner
from dagster._cli import create_dagster_cli

from examples.operations.server import write_home
from laminar_core.cli.main import laminar
from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.orchestration.streams import ROOT
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.commands import (
    ControlBegun,
    ControlCommand,
    ControlResult,
    SetMode,
    StopJob,
    TakeSavepoint,
)
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.resources.drivers.session import session_members
from laminar_core.resources.names import checkpoint_partitions, partition_of
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.savepoint_export import export_savepoint
from tests.store.stores import JOB, claim, commit, complete

STAND_IN = Path(__file__).with_name("stream_stand_in.py")
CHECKPOINTS = (1, 2, 3)
POLL_S = 0.02

_HEREDOC = re.compile(r"cat > (\S+) <<('?)END\2\n(.*?)\nEND\n", re.DOTALL)


class World:
    """A working directory; the job of the runbook has three checkpoints and was stopped."""

    def __init__(self, place: Path) -> None:
        write_home(place)
        self.place = place
        self.store = CheckpointStore.open(str(place / "store"), JOB)
        self.definitions = self._definitions()
        self.environment = {
            "LAMINAR_STORE": str(place / "store"),
            "DAGSTER_HOME": str(place),
            "LAMINAR_ACTOR": "ann",
            "PYTHONPATH": str(ROOT),
        }
        with dg.DagsterInstance.from_config(str(place)) as instance:
            name = checkpoint_partitions(JOB).name
            assert name is not None
            instance.add_dynamic_partitions(name, [partition_of(n) for n in CHECKPOINTS])

    def begin_anew(self) -> None:
        """A store as it was at first; Dagster keeps its history."""
        shutil.rmtree(self.place / "store", ignore_errors=True)
        generation = claim(self.store)
        for checkpoint_id in CHECKPOINTS:
            complete(self.store, checkpoint_id, generation)
            commit(self.store, checkpoint_id, generation)
        self.store.generations.end(generation, "stopped", "maintenance")

    def _definitions(self) -> dg.Definitions:
        """Those of the shipped payments, but for what starts a driver."""
        spec = StreamSpec(
            name=JOB,
            program=STAND_IN,
            arguments={"how": "serves"},
            laminar=(sys.executable, str(STAND_IN)),
        )
        resources = {
            "laminar_checkpoints": CheckpointStoreResource(uri=str(self.place / "store")),
            "laminar_driver": SparkDriverClient(),
            "laminar_launcher": DetachedDriver(
                log_directory=str(self.place / "drivers"), first_rows_s=0.1
            ),
        }
        shared = dg.Definitions(executor=dg.in_process_executor, resources=resources)
        return dg.Definitions.merge(laminar_definitions(spec), shared)

    def end_drivers(self) -> None:
        """Whoever was started as the owner of a generation, but this process."""
        if not (self.place / "store").is_dir():
            return  # The test was skipped before it made one.
        for generation in self.store.generations.summaries():
            pid = generation.claim.owner.pid if generation.claim else os.getpid()
            if pid != os.getpid():
                for member in session_members(pid):
                    with suppress(ProcessLookupError):
                        os.kill(member, signal.SIGKILL)

    def run(self, block: str, exit_code: int = 0) -> str:
        """Do what a block of the runbook says; returns what was printed."""
        for name, quote, text in _HEREDOC.findall(block):
            written = text if quote else text.replace("$PWD", str(self.place))
            (self.place / name).write_text(f"{written}\n")
        rest = _HEREDOC.sub("", block).replace("\\\n", " ").replace("$PWD", str(self.place))
        rest = rest.replace("build/", f"{self.place}/build/")  # The tests' Spark works elsewhere.
        said = ""
        for line in filter(None, map(str.strip, rest.splitlines())):
            code, out = command(line)
            assert code == exit_code, f"{line}\nended with {code}:\n{out[-3000:]}"
            said += out
        return said


class Driver(threading.Thread):
    """This very process runs the job, and does what it is asked for."""

    def __init__(self, store: CheckpointStore) -> None:
        super().__init__(daemon=True)
        self.store = store
        self.generation = claim(store, max(CHECKPOINTS))
        self.log = ControlLog(store.objects, store.paths)
        self.over = threading.Event()

    def run(self) -> None:
        seen = 0
        while not self.over.wait(POLL_S):
            for entry in self.log.read_after(seen):
                seen = entry.number
                assert entry.command is not None
                self.log.begin(
                    entry.number, ControlBegun(generation=self.generation, begun_at_ms=1)
                )
                self.log.answer(entry.number, self.answer(entry.command))
                if isinstance(entry.command.action, StopJob):
                    self.store.generations.end(self.generation, "stopped", entry.command.reason)
                    return

    def answer(self, command: ControlCommand) -> ControlResult:
        try:
            return self.obey(command)
        except Exception as error:  # noqa: BLE001 - whoever asked waits for an answer
            return ControlResult(
                outcome="failed", reason=repr(error), generation=self.generation, answered_at_ms=1
            )

    def obey(self, command: ControlCommand) -> ControlResult:
        facts: dict[str, object] = {}
        if isinstance(command.action, SetMode):
            facts["details"] = {
                "alignment_timeout_ms": 0,
                "edges": 2,
                "edges_always_aligned": 0,
            }
        else:
            facts["checkpoint_id"] = (self.store.attempts.highest_id() or 0) + 1
            complete(self.store, facts["checkpoint_id"], self.generation)
        if isinstance(command.action, TakeSavepoint):
            facts["savepoint"] = export_savepoint(
                self.store,
                CheckpointId(facts["checkpoint_id"]),
                command.action.target,
                command.by,
                1,
            )
        return ControlResult(
            outcome="completed",
            generation=self.generation,
            answered_at_ms=SystemClock().now_ms(),
            **facts,
        )


def command(line: str) -> tuple[int, str]:
    """Run one line in this process; returns exit code and output."""
    program, *words = shlex.split(line)
    group: Callable[[], click.Command] = {
        "laminar": lambda: laminar,
        "dagster": create_dagster_cli,
    }[program]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster recommends other commands.
        result = CliRunner().invoke(group(), words, prog_name=program)
    code = getattr(result.exception, "exit_code", result.exit_code)
    said = f"{result.output}\n{result.exception or ''}"
    return code, said


@dataclass(frozen=True)
class Block:
    """Commands of the runbook: under which heading, in which failure, and how they end there."""

    heading: str
    state: str
    exit_code: int
    commands: str


def blocks(document: str) -> list[Block]:
    """Return each block of commands; ```` ```bash full 4 ````: on a full disk they end with 4."""
    found, heading = [], ""
    parts = re.finditer(
        r"^#+ ([^\n]+)$|^```bash ?(\w*) ?(\d*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL
    )
    for part in parts:
        if part[1]:
            heading = part[1]
        else:
            found.append(Block(heading, part[2] or "stopped", int(part[3] or 0), part[4]))
    return found
