"""The command counts what its cases found; the cases themselves are not run here."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.verification.commands.test_brokers import RIGHT, WRONG, NoPlace
from verification.brokers import kills as cases
from verification.brokers import place
from verification.brokers.judge import Verdict
from verification.brokers.kills import KillCase
from verification.commands import kills


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Verdict]:
    """Results of the cases, and of the canaries."""
    given = {"case": RIGHT, "canary": WRONG}

    def run(where: NoPlace, folder: Path, case: KillCase) -> Verdict:
        del where, folder
        return given["canary" if case in cases.CANARIES.values() else "case"]

    monkeypatch.setattr(kills, "jars_of", lambda _: tmp_path)
    monkeypatch.setattr(place, "Place", NoPlace)
    monkeypatch.setattr(cases, "run_kill", run)
    return given


@pytest.mark.usefixtures("verdicts")
def test_all_is_right(verify: Callable[..., Result]) -> None:
    result = verify("kills", "--cases", 3, "--seed", 7, "--minutes", 1)
    assert result.exit_code == 0, result.output
    assert "3 cases, 30 rows: 0 lost" in result.output
    assert "canaries: 3 of 3 caught" in result.output
    lines = verify("kills", "--cases", 3, "--json").output.splitlines()
    summary = json.loads(lines[-1])
    assert (summary["cases"], summary["wrong"], summary["fired"]) == (3, 0, 3)
    assert sum(summary["struck"].values()) == 3


@pytest.mark.parametrize(("what", "verdict"), [("case", WRONG), ("canary", RIGHT)])
def test_whatever_is_wrong_fails_the_command(verdicts, verify, what, verdict) -> None:
    verdicts[what] = verdict
    result = verify("kills", "--cases", 1, "--seed", 9)
    assert result.exit_code == 1
    if what == "case":
        assert "again: python -m verification kills --cases 1 --seed 9" in result.output


def test_without_jars_it_says_how_to_get_them(monkeypatch, verify) -> None:
    monkeypatch.setattr(kills, "jars_of", lambda _: None)
    result = verify("kills")
    assert (result.exit_code, "make servers" in result.output) == (1, True)
