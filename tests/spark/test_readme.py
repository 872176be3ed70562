"""The README's pipeline runs as it is written there."""

import re
from pathlib import Path

import pytest

from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.jobs.payments_data import write_payments

pytestmark = pytest.mark.spark

README = Path(__file__).parent.parent.parent / "README.md"
ROWS = 50_000


@pytest.mark.usefixtures("spark")
def test_the_pipeline_of_the_readme_runs_verbatim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    write_payments("build/demo/input", rows=ROWS, files=2, merchants=50)

    exec(compile(program, str(README), "exec"), {})

    printed = capsys.readouterr().out.split()
    assert printed[:2] == ["finished", str(ROWS)]
    committed = read_committed("build/readme/output")
    assert committed.num_rows == int(printed[2])
    assert sum(committed.column("count").to_pylist()) == ROWS
