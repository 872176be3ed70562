"""Without an optional package, whatever needs it says in one line how to install it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, MissingExtraError
from laminar_core.host.extras import needs_extra

ROOT = Path(__file__).parents[2]
BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        absent = {
            "boto3", "botocore", "dagster", "obstore", "opentelemetry", "prometheus_client",
            "rocksdict",
        }
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""Put before a program, it makes an environment without the extras."""

COMMANDS = {
    "a store": ("status", "--store", "s3://bucket/prefix", "--job", "payments"),
    "a store in Azure": ("status", "--store", "az://container/prefix", "--job", "payments"),
    "all jobs of a store": ("jobs", "--store", "s3://bucket/prefix"),
    "a start": ("run", "job.py", "--store", "s3://bucket/prefix"),
    "a savepoint": ("savepoint", "show", "s3://bucket/savepoint"),
    "state in RocksDB": ("run", "job.py", "--store", "store", "--state-backend", "rocksdb"),
    "metrics": ("run", "job.py", "--store", "store", "--prometheus-port", "0"),
    "a campaign": ("simulate", "--seeds", "1"),
}
JOB = """
from laminar_core.connectors import DatagenSource, ParquetSink, Sequence
from laminar_core.pipeline import Pipeline

def pipeline():
    p = Pipeline("payments")
    rows = p.source("rows", DatagenSource({"n": Sequence()}, rows=10))
    rows.sink("output", ParquetSink("output"))
    return p
"""


def without_extras(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_command_that_needs_one_says_so_in_one_line(tmp_path: Path) -> None:
    """One process for all: starting Python and its imports is most of the work."""
    (tmp_path / "job.py").write_text(JOB)
    program = f"""
import contextlib, io, json
from laminar_core.cli.main import main
for words in {list(COMMANDS.values())}:
    said, sys.argv = io.StringIO(), ["laminar", *words]
    try:
        with contextlib.redirect_stderr(said):
            main()
    except SystemExit as end:
        print(json.dumps([end.code, said.getvalue()]))
"""
    done = without_extras(program, tmp_path)
    answers = dict(zip(COMMANDS, map(json.loads, done.stdout.splitlines()), strict=True))
    s3 = "error: s3:// stores need: pip install 'laminar-core[s3]'\n"
    rocksdb = "error: jobs with state in RocksDB need: pip install 'laminar-core[rocksdb]'\n"
    metrics = "error: metrics need: pip install 'laminar-core[metrics]'\n"
    azure = "error: az:// stores need: pip install 'laminar-core[azure]'\n"
    for name, (code, said) in answers.items():
        words = str(COMMANDS[name])
        expected = metrics if name == "metrics" else azure if "az://" in words else rocksdb
        assert (name, code, said) == (name, 2, s3 if "s3://" in words else expected)


@pytest.mark.parametrize("package", ["orchestration", "sensors", "resources"])
def test_definitions_of_dagster_say_that_they_need_it(package: str, tmp_path: Path) -> None:
    done = without_extras(f"import laminar_core.{package}", tmp_path)
    assert done.stderr.splitlines()[-1].endswith(" need: pip install 'laminar-core[dagster]'")


def test_a_worker_says_that_its_machine_lacks_one(tmp_path: Path) -> None:
    """The driver has both: it reports what the worker sends as the reason of the failure."""
    program = """
from laminar_core.errors import MissingExtraError
from laminar_core.objectstore.opening import open_object_store
from laminar_core.plan.state_options import StateOptions
from laminar_core.worker.backends import require_backend
from laminar_core.worker.failures import failure
for need in (
    lambda: open_object_store("s3://bucket/prefix"),
    lambda: require_backend(StateOptions(backend="rocksdb")),
):
    try:
        need()
    except MissingExtraError as error:
        message = failure(3, 1, error)
        print(message.code, message.restart_helps, message.reason)
"""
    done = without_extras(program, tmp_path)
    assert done.stdout.splitlines() == [
        "missing-extra False s3:// stores need: pip install 'laminar-core[s3]'",
        "missing-extra False jobs with state in RocksDB need: pip install 'laminar-core[rocksdb]'",
    ]


def test_it_is_an_import_error_and_a_wrong_request() -> None:
    with pytest.raises(MissingExtraError) as caught, needs_extra("s3", "s3:// stores"):
        raise ModuleNotFoundError("No module named 'botocore'", name="botocore.config")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, ConfigurationError)
    assert caught.value.code is ErrorCode.MISSING_EXTRA


def test_an_import_that_fails_for_another_reason_is_not_explained_away() -> None:
    with pytest.raises(ModuleNotFoundError, match="something_else"), needs_extra("s3", "stores"):
        raise ModuleNotFoundError("No module named 'something_else'", name="something_else")
