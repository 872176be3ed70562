"""``laminar bench`` runs what the checkout has, and says so where there is none."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNNER = """
import json
from dataclasses import asdict, dataclass

@dataclass
class Figure:
    name: str
    values: tuple[float, ...]
    better: str = "higher"
    target: float | None = None
    met: bool | None = None
    unit: str = "rows/s"

    @property
    def median(self):
        return sorted(self.values)[len(self.values) // 2]

@dataclass
class Record:
    benchmark: str
    runs: int
    figures: list[Figure]

    def model_dump(self, mode):
        assert mode == "json"
        return asdict(self)

    def save(self, folder):
        folder.mkdir(exist_ok=True)
        (folder / f"{self.benchmark}.json").write_text(json.dumps(asdict(self)))

def descriptions():
    return {"fast": "how fast it is", "slow": "how slow it is", "sick": "it fails"}

def run(names, tell, repeat):
    tell(f"running {names}")
    figures = {
        "fast": Figure("fast", (12345678.9,), target=5e6, met=True),
        "slow": Figure("slow", (0.2, 0.25, 0.5), "lower", 0.1, met=False),
    }
    for name in names:
        yield Record(name, repeat, [figures[name]])

def summary(records):
    rows = [("slowness", "0.25 s", "missed") for each in records if each.benchmark == "slow"]
    return ("figure", "measured", ""), rows
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
    assert answer.out == "fast: how fast it is\nslow: how slow it is\nsick: it fails\n"


@pytest.mark.usefixtures("runner")
def test_json_is_a_list_of_records(cli) -> None:
    records = json.loads(cli("bench", "--json", "--repeat", "3", "slow", "fast").out)
    assert [(record["benchmark"], record["runs"]) for record in records] == [
        ("slow", 3),
        ("fast", 3),
    ]
    assert [record["figures"][0]["values"] for record in records] == [
        [0.2, 0.25, 0.5],
        [12345678.9],
    ]


def test_each_record_is_saved_as_soon_as_it_is_there(cli, runner) -> None:
    assert cli("bench", "--save", "results").code != 0
    saved = {path.name: json.loads(path.read_text()) for path in (runner / "results").iterdir()}
    assert saved.keys() == {"fast.json", "slow.json"}
    assert saved["fast.json"]["runs"] == 1


@pytest.mark.usefixtures("runner")
def test_people_see_the_range_and_whether_targets_were_met(cli) -> None:
    answer = cli("bench", "fast", "slow")
    heading, fast, slow, *_ = [line.split() for line in answer.out.splitlines()]
    assert answer.code == 0
    assert heading == ["benchmark", "value", "lowest", "highest", "unit", "target", "met"]
    assert fast == ["fast", "1.235e+07", "rows/s", "≥", "5e+06", "yes"]
    assert slow == ["slow", "0.25", "0.2", "0.5", "rows/s", "≤", "0.1", "no"]


@pytest.mark.usefixtures("runner")
def test_what_is_wanted_comes_last_if_any_of_it_was_measured(cli) -> None:
    lines = cli("bench", "fast", "slow").out.splitlines()
    assert [line.split() for line in lines[-3:]] == [
        ["What", "is", "wanted"],
        ["figure", "measured"],
        ["slowness", "0.25", "s", "missed"],
    ]
    assert len(cli("bench", "fast").out.splitlines()) == 2


@pytest.mark.usefixtures("runner")
def test_an_unknown_benchmark_is_refused_before_any_runs(cli) -> None:
    answer = cli("bench", "fast", "faster")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: no benchmark faster; there are: fast, slow, sick\n"


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
