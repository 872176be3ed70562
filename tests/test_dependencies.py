"""Locked packages are audited, and their licences are known; ``make check`` does both."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_tidy import commands_of

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
audit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(audit)

CLEAN = {"name": "a", "version": "1", "vulns": []}
UNKNOWN = {"name": "b", "skip_reason": "not found on PyPI"}
VULNERABLE = {
    "name": "c",
    "version": "2",
    "vulns": [{"id": "GHSA-1", "fix_versions": ["3"]}, {"id": "GHSA-2", "fix_versions": []}],
}
HOUR_S, DAY_S = 3_600, 86_400


def report(*packages: dict[str, object]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


@pytest.mark.parametrize(
    ("printed", "trouble", "kind", "said"),
    [
        (report(CLEAN), "", "clean", "1 packages without a known vulnerability"),
        (report(CLEAN, UNKNOWN), "", "clean", "1 are not on PyPI"),
        (report(CLEAN, VULNERABLE), "", "vulnerable", "c 2: GHSA-1, mended in 3"),
        (report(VULNERABLE), "", "vulnerable", "c 2: GHSA-2, mended in no version yet"),
        (report(UNKNOWN, UNKNOWN), "", "skipped", "knows none of 2 packages"),
        ("", "noise\nConnectionError: pypi.org\n", "skipped", "ConnectionError: pypi.org"),
        ("", "", "skipped", "cannot be reached: no answer"),
        ("[1]", "", "skipped", "cannot be reached"),
    ],
)
def test_only_a_vulnerability_fails_and_silence_is_called_silence(
    printed: str, trouble: str, kind: str, said: str
) -> None:
    verdict = audit.judge(printed, trouble)
    assert verdict.kind == kind
    assert any(said in line for line in verdict.lines)
    assert all("skipped" in line for line in verdict.lines) == (kind == "skipped")


@pytest.mark.parametrize(
    ("kind", "age_s", "is_kept"),
    [
        ("clean", DAY_S - 1, True),
        ("clean", DAY_S, False),
        ("skipped", HOUR_S - 1, True),
        ("skipped", HOUR_S, False),
        ("vulnerable", 0, False),
        ("clean", -1, False),
    ],
)
def test_an_answer_is_kept_for_a_while_and_a_failure_never(
    tmp_path: Path, kind: str, age_s: int, *, is_kept: bool
) -> None:
    path = tmp_path / "audited"
    verdict = audit.Verdict(kind, ("a line",))
    audit.keep(path, "lock", 1_000_000, verdict)
    assert audit.kept(path, "lock", 1_000_000 + age_s) == (verdict if is_kept else None)
    assert audit.kept(path, "another lock", 1_000_000 + age_s) is None


@pytest.mark.parametrize("data", ["", "{}", "[]", '{"kind": "odd", "lines": [], "at_s": 1}'])
def test_an_answer_that_cannot_be_read_is_looked_up_again(tmp_path: Path, data: str) -> None:
    (tmp_path / "audited").write_text(data)
    assert audit.kept(tmp_path / "audited", "lock", 1) is None
    assert audit.kept(tmp_path / "nothing", "lock", 1) is None


def licences(*words: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.prefix) / "bin" / "pip-licenses", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_licence_is_one_of_the_list() -> None:
    answer = licences()
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["MIT", "Apache-2.0"])
def test_a_licence_that_is_not_in_the_list_is_refused(missing: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pip-licenses"]
    others = [one for one in settings["allow-only"].split(";") if one != missing]
    answer = licences("--allow-only", ";".join(others))
    assert answer.returncode == 1
    assert f"license {missing} not in allow-only" in answer.stderr


def test_no_licence_on_the_list_is_unknown_or_copyleft_for_what_is_built_with_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pip-licenses"]
    assert not re.search(r"UNKNOWN|GPL|AGPL|SSPL|EUPL", settings["allow-only"])


def test_check_does_both() -> None:
    commands = commands_of("check")
    assert "pip-licenses" in commands
    assert "scripts/audit.py" in commands
