"""All processes of a run share a server, which ends when the last of them was killed."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]
USER = """
import sys
from pathlib import Path
from verification.servers.shared_server import shared_server
with shared_server(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def user(kafka_jars: Path, tmp_path: Path):
    started = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", USER, "kafka", str(kafka_jars), str(tmp_path)]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def brokers_of(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or ())
        and "java" in process.info["cmdline"][0]
    ]


def test_users_share_it_and_the_death_of_the_last_one_ends_it(user, tmp_path: Path) -> None:
    users = [user(), user()]
    first, second = (one.stdout.readline() for one in users)
    assert first == second != ""
    (broker,) = brokers_of(tmp_path)
    users[0].kill()
    users[0].wait()
    later = user()
    assert later.stdout.readline() == first, "it runs for as long as it has a user"
    for one in (users[1], later):
        one.kill()
    psutil.wait_procs([broker], timeout=30)
    assert brokers_of(tmp_path) == []
    assert not (tmp_path / "address").exists()


@pytest.mark.parametrize(
    ("kind", "why"), [("kafka", "kafka.tools.StorageTool"), ("postgres", "initdb")]
)
def test_a_server_that_does_not_start_is_an_error_that_says_why(
    tmp_path: Path, kind: str, why: str
) -> None:
    words = [kind, str(tmp_path / "no-programs"), str(tmp_path / "run")]
    command = [sys.executable, "-c", USER, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"RuntimeError: no {kind}" in done.stderr
    assert why in done.stderr
