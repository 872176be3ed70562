"""``laminar bench`` runs what the checkout has, and says so where there is none."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNNER = """
from dataclasses import dataclass

@dataclass
class Result:
    name: str
    value: float
    better: str = "higher"
    target: float | None = None
    met: bool | None = None

    def as_dict(self):
        return {**self.__dict__, "unit": "rows/s"}

def descriptions():
    return {"fast": "how fast it is", "slow": "how slow it is"}

def run(names, tell):
    tell(f"running {names}")
    results = {
        "fast": Result("fast", 12345678.9, target=5e6, met=True),
        "slow": Result("slow", 0.25, "lower", 0.1, met=False),
    }
    return [results[name] for name in names]
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with benchmarks of its own; the real ones are put back."""
    real = {name: sys.modules.pop(name) for name in list(sys.modules) if is_benchmark(name)}
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p, "benchmarks").is_dir()])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if is_benchmark(name)]:
        del sys.modules[name]
    sys.modules.update(real)


def is_benchmark(name: str) -> bool:
    return name.partition(".")[0] == "benchmarks"


@pytest.fixture
def runner(checkout: Path) -> Path:
    (checkout / "benchmarks").mkdir()
    (checkout / "benchmarks" / "runner.py").write_text(RUNNER)
    return checkout


@pytest.mark.usefixtures("runner")
def test_benchmarks_are_listed_without_running_them(cli) -> None:
    answer = cli("bench", "--list")
    assert answer.out == "fast: how fast it is\nslow: how slow it is\n"


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize(
    ("words", "names"), [((), ["fast", "slow"]), (("slow",), ["slow"])], ids=["all", "one"]
)
def test_json_is_a_list_of_results(cli, words: tuple[str, ...], names: list[str]) -> None:
    results = json.loads(cli("bench", "--json", *words).out)
    assert [result["name"] for result in results] == names
    assert all(
        result.keys() == {"name", "value", "unit", "better", "target", "met"} for result in results
    )


@pytest.mark.usefixtures("runner")
def test_people_see_whether_targets_were_met(cli) -> None:
    heading, fast, slow = [line.split() for line in cli("bench").out.splitlines()]
    assert heading == ["benchmark", "value", "unit", "target", "met"]
    assert fast == ["fast", "1.235e+07", "rows/s", "≥", "5e+06", "yes"]
    assert slow == ["slow", "0.25", "rows/s", "≤", "0.1", "no"]


@pytest.mark.usefixtures("runner")
def test_an_unknown_benchmark_is_refused_before_any_runs(cli) -> None:
    answer = cli("bench", "fast", "faster")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: no benchmark faster; there are: fast, slow\n"


@pytest.mark.usefixtures("checkout")
def test_without_a_checkout_there_is_nothing_to_run(cli) -> None:
    answer = cli("bench")
    assert answer.code == 2
    assert "run this from a checkout of Laminar" in answer.err


def test_a_benchmark_that_lacks_a_package_is_not_mistaken_for_no_checkout(cli, runner) -> None:
    (runner / "benchmarks" / "runner.py").write_text("import no_such_package\n")
    answer = cli("bench")
    assert answer.code == 2
    assert "no_such_package" in answer.err
