"""Tests see the same environment on every machine, and so does the continuous integration."""

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OF_THE_MACHINE
from verification.hosts.needs import missing

ROOT = Path(__file__).parent.parent
MAKEFILE = """
check test test-large test-jvm test-oldest:
\t@echo "$@ $(TESTS) as $$(id -u) in $(CURDIR)" && env
\t@[ "$@" != "$(FAILS)" ]
"""
"""Stands in for ours: says for which target, as whom and with which variables it is called."""

LOGIN = {"HOME", "PATH", "LANG"}
OF_THE_SHELL_AND_MAKE = {"PWD", "OLDPWD", "SHLVL", "_", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
GOALS = ("check", "test", "test-large", "test-jvm", "test-oldest")
OTHERS = {"MAKEOVERRIDES", "TESTS", "MAKE_TERMOUT", "MAKE_TERMERR"}


def test_variables_of_the_machine_do_not_reach_the_tests() -> None:
    """One that developers' machines set hid ten tests that failed everywhere else."""
    program = (
        "import json, os, sys, tests.conftest\n"
        "print(json.dumps([sorted(os.environ), sys.dont_write_bytecode]))"
    )
    of_the_machine = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "SPARK_HOME", "NO_COLOR")
    kept = ("HOME", "PATH", "LAMINAR_HOSTS", "LAMINAR_SEEDS", "LAMINAR_SERVERS", "TMPDIR")
    environment = {**os.environ, **dict.fromkeys((*of_the_machine, *kept), "1")}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, check=True
    )
    names, writes_no_bytecode = json.loads(answer.stdout)
    of_the_project = [name for name in names if OF_THE_MACHINE.match(name)]
    kept_here = [name for name in kept if name.startswith("LAMINAR_")]
    assert of_the_project == ["LAMINAR_CONFIG", *kept_here]
    assert set(kept) <= set(names)
    assert not writes_no_bytecode


def test_garbage_is_looked_for_but_not_among_the_tests() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_one_command_runs_every_campaign_at_the_size_that_is_asked_for() -> None:
    asked = ("SEED=3", "SEEDS=5", "WORLDS=relay", "CORRUPTIONS=7", "FORGERIES=11", "MINUTES=2")
    environment = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"]}
    answer = subprocess.run(
        ["make", "--dry-run", "campaign", *asked],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {
        ".venv/bin/laminar simulate --seeds 5 --from 3",
        ".venv/bin/python -m verification worlds relay",
        ".venv/bin/python -m verification corruptions 7 --from 3",
        ".venv/bin/python -m verification forgeries 11 --from 3",
        ".venv/bin/python -m tests.spark.kill_campaign --minutes 2 --seed 3",
    } <= set(answer.stdout.splitlines())


class Checkout:
    """A copy of ``.ci`` beside a Makefile that only tells."""

    def __init__(self, place: Path) -> None:
        self.place = place
        shutil.copytree(ROOT / ".ci", place / ".ci")
        (place / "Makefile").write_text(MAKEFILE)

    def run(
        self, *words: str, makefile: str = MAKEFILE, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        (self.place / "Makefile").write_text(makefile)
        return subprocess.run(
            [self.place / ".ci" / "run", *words],
            env={"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    tmp_path.chmod(0o700)  # Another user cannot reach what lies below.
    return Checkout(tmp_path)


def variables(out: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def test_only_what_package_clients_need_goes_through(checkout: Checkout) -> None:
    passed = {
        "PIP_CERT": "/c.crt",
        "MAVEN_ARGS": "-s /m.xml",
        "https_proxy": "http://p:1",
        "GOPROXY": "direct",
    }
    answer = checkout.run(**passed, PYTHONDONTWRITEBYTECODE="1", CI="true", SPARK_HOME="/s")
    assert answer.returncode == 0
    found = variables(answer.stdout)
    assert found.keys() - OF_THE_SHELL_AND_MAKE - OTHERS == LOGIN | passed.keys()
    assert {name: found[name] for name in passed} == passed


def test_everything_runs_as_a_user_that_is_not_root_in_a_copy_of_its_own(
    checkout: Checkout,
) -> None:
    answer = checkout.run("tests/cli", "-x")
    said = [line for line in answer.stdout.splitlines() if " as " in line and "=" not in line]
    goals = [line.partition(" as ")[0] for line in said]
    assert goals == [f"{goal} tests/cli -x" for goal in GOALS]
    user, where = said[0].partition(" as ")[2].split(" in ")
    if os.geteuid() == 0:
        assert user != "0"
        assert where != str(checkout.place)
        assert not Path(where).exists(), "the copy is removed"
        assert not Path(variables(answer.stdout)["HOME"]).exists()
    else:
        assert (user, where) == (str(os.geteuid()), str(checkout.place))
        assert "not root already" in answer.stderr


def without(tmp_path: Path, *absent: str) -> str:
    """A PATH on which some commands are not to be found."""
    place = tmp_path / "commands"
    place.mkdir()
    for folder in ("/usr/sbin", "/usr/bin", "/bin"):
        for command in Path(folder).glob("*"):
            if command.is_file() and command.name not in absent:
                (place / command.name).unlink(missing_ok=True)
                (place / command.name).symlink_to(command)
    return str(place)


def test_who_cannot_drop_root_says_so_and_runs_as_it_is(checkout, tmp_path: Path) -> None:
    answer = checkout.run(PATH=without(tmp_path, "setpriv", "runuser"))
    why = "root, because it cannot become nobody:" if os.geteuid() == 0 else "which is not root"
    assert why in answer.stderr
    assert f"test  as {os.geteuid()} in {checkout.place}" in answer.stdout
    assert answer.returncode == 0


@pytest.mark.parametrize("goal", GOALS)
def test_one_failure_fails_it_and_the_others_run_all_the_same(
    checkout: Checkout, goal: str
) -> None:
    answer = checkout.run(makefile=MAKEFILE.replace("$(FAILS)", goal))
    assert answer.returncode != 0
    assert [other for other in GOALS if f"{other}  as " not in answer.stdout] == []


SERVERS = """
setup:
servers:
\t@echo servers as $$(id -u)
\t@[ "$@" != "$(FAILS)" ]
"""


@pytest.mark.parametrize("fails", ["", "servers"])
def test_servers_come_before_tests_and_are_required(checkout: Checkout, fails: str) -> None:
    answer = checkout.run(makefile=f"FAILS = {fails}{SERVERS}{MAKEFILE}")
    said = answer.stdout.splitlines()
    assert answer.returncode == 0
    (servers,) = (n for n, line in enumerate(said) if line.startswith("servers as"))
    (tests,) = (n for n, line in enumerate(said) if line.startswith("test  as"))
    assert servers < tests
    assert said.count("LAMINAR_SERVERS=required") == len(GOALS)
    assert ("tests of the servers named above are skipped" in answer.stderr) is (fails != "")


HOSTS = """
hosts:
\t@echo hosts as $$(id -u) in $(CURDIR) && env
\t@[ "$@" != "$(FAILS)" ]
"""
may_make_hosts = pytest.mark.skipif(missing() is not None, reason=f"no hosts: {missing()}")


@may_make_hosts
def test_hosts_come_last_as_root_and_none_may_be_missing(checkout: Checkout) -> None:
    answer = checkout.run(makefile=f"{HOSTS}{MAKEFILE}")
    assert answer.returncode == 0
    last = answer.stdout[answer.stdout.index("hosts as 0 in ") :]
    copy = last.splitlines()[0].partition(" in ")[2]
    assert copy != str(checkout.place)
    assert f"test  as 0 in {copy}" not in answer.stdout
    found = variables(last)
    assert found["LAMINAR_HOSTS"] == "required"
    assert found["HOME"] != variables(answer.stdout[: answer.stdout.index("hosts as 0")])["HOME"]


@may_make_hosts
def test_hosts_run_after_a_failure_and_their_own_failure_counts(checkout: Checkout) -> None:
    answer = checkout.run(makefile=f"FAILS = test\n{HOSTS}{MAKEFILE}")
    assert answer.returncode != 0
    assert "hosts as 0" in answer.stdout
    assert checkout.run(makefile=f"FAILS = hosts\n{HOSTS}{MAKEFILE}").returncode != 0


def test_where_no_hosts_can_be_made_the_reason_is_said(checkout: Checkout, tmp_path: Path) -> None:
    answer = checkout.run(makefile=f"{HOSTS}{MAKEFILE}", PATH=without(tmp_path, "unshare"))
    assert answer.returncode == 0
    assert "tests over several hosts are skipped: " in answer.stderr
    assert "hosts as" not in answer.stdout


def test_a_part_of_the_suite_is_run_without_hosts(checkout: Checkout) -> None:
    answer = checkout.run("tests/cli", makefile=f"{HOSTS}{MAKEFILE}")
    assert answer.returncode == 0
    assert "hosts" not in answer.stdout + answer.stderr
