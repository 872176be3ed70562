"""The command counts what its cases found; the cases themselves are not run here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pytest
from click.testing import Result

from verification.brokers import campaign, place
from verification.brokers.cases import Case
from verification.brokers.judge import Verdict
from verification.commands import brokers

RIGHT = Verdict(rows=10, fired=1)
WRONG = Verdict(rows=10, lost=1, fired=1)


class NoPlace:
    """Stands for a broker that nothing is asked of."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Verdict]:
    """Results of the cases, and of the canary and the loss."""
    given = {"case": RIGHT, "loss": RIGHT, "canary": WRONG}

    def case(where: NoPlace, drawn: Case) -> Verdict:
        del where, drawn
        return given["case"]

    def named(name: str) -> Mapping[str, Callable[[object], Verdict]]:
        return {name: lambda _: given[name]}

    monkeypatch.setattr(brokers, "jars_of", lambda _: tmp_path)
    monkeypatch.setattr(place, "Place", NoPlace)
    monkeypatch.setattr(campaign, "run", case)
    monkeypatch.setattr(campaign, "LOSSES", named("loss"))
    monkeypatch.setattr(campaign, "CANARIES", named("canary"))
    return given


@pytest.mark.usefixtures("verdicts")
def test_all_is_right(verify: Callable[..., Result]) -> None:
    result = verify("brokers", "--cases", 3, "--seed", 7)
    assert result.exit_code == 0, result.output
    assert "3 cases and 1 losses, 40 rows: 0 lost" in result.output
    assert "canaries: 1 of 1 caught" in result.output
    lines = verify("brokers", "--cases", 3, "--json").output.splitlines()
    summary = json.loads(lines[-1])
    assert (summary["cases"], summary["wrong"], summary["fired"]) == (3, 0, 4)
    assert len(lines) == 5


@pytest.mark.parametrize(("what", "verdict"), [("case", WRONG), ("loss", WRONG), ("canary", RIGHT)])
def test_whatever_is_wrong_fails_the_command(verdicts, verify, what, verdict) -> None:
    verdicts[what] = verdict
    result = verify("brokers", "--cases", 1, "--seed", 9)
    assert result.exit_code == 1
    if what == "case":
        assert "again: python -m verification brokers --cases 1 --seed 9" in result.output


def test_without_jars_it_says_how_to_get_them(monkeypatch, verify) -> None:
    monkeypatch.setattr(brokers, "jars_of", lambda _: None)
    result = verify("brokers")
    assert (result.exit_code, "make servers" in result.output) == (1, True)
