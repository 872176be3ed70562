"""The loop job in a simulated cluster, killed, against the answer that needs no loop."""

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.jobs import loop_data
from laminar_core.jobs.loop import ATTEMPT_FEE_CENTS, ATTEMPTS_MAX, enter, pipeline, retry
from laminar_core.jobs.loop_data import in_order, settlements
from laminar_core.jobs.payments_data import PaymentsParameters, write_payments
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

ROWS = 600
PARAMETERS = PaymentsParameters(ROWS, 1, 50, 1.1, 1, "2026-01-01T00:00:00Z", 100, 20)


@pytest.fixture(scope="module")
def payments() -> pa.Table:
    batch = PARAMETERS.source().rows_between(0, ROWS)
    plain = batch.set_column(0, "merchant", batch.column("merchant").cast(pa.string()))
    return pa.Table.from_batches([plain])


def test_the_answer_is_that_of_trying_one_after_the_other(payments: pa.Table) -> None:
    expected = settlements(payments)
    assert expected.num_rows == ROWS
    tries = expected.column("attempts").to_pylist()
    settled = expected.column("settled").to_pylist()
    assert set(tries) == set(range(1, ATTEMPTS_MAX + 1))
    assert {n for n, ok in zip(tries, settled, strict=True) if not ok} == {ATTEMPTS_MAX}
    assert expected.column("fee_cents").to_pylist() == [n * ATTEMPT_FEE_CENTS for n in tries]
    assert 0.5 < tries.count(1) / ROWS < 0.7


@pytest.mark.sampled(3)
@pytest.mark.parametrize("alignment_timeout_ms", [None, 0])
@pytest.mark.parametrize("seed", range(4))
def test_killed_workers_leave_the_settlements_exact(
    payments: pa.Table, seed: int, alignment_timeout_ms: int | None
) -> None:
    ledger, p = Ledger(), Pipeline("loop")
    splits = [payments.slice(n * ROWS // 4, ROWS // 4) for n in range(4)]
    entering = p.source("payments", MemorySource(splits, batch_rows=20)).map(enter, name="enter")
    entering.iterate(retry, name="retry").sink("settlements", LedgerSink(ledger))
    simulation = Simulation(
        p.plan(),
        parallelism=2,
        seed=seed,
        checkpoint=CoordinatorConfig(interval_ms=20, alignment_timeout_ms=alignment_timeout_ms),
    )
    for number in (1, 3, 5):
        simulation.when(CheckpointCompleted, partial(simulation.kill_worker, number % 2), number)
    result = simulation.run()
    assert result.outcome == "finished"
    assert result.generations > 1
    found = pa.Table.from_batches([b for batches in ledger.visible.values() for b in batches])
    assert in_order(found).equals(in_order(settlements(payments)))


def test_the_pipeline_is_a_loop_over_files(tmp_path) -> None:
    write_payments(tmp_path / "in", rows=100, files=1, merchants=5)
    plan = pipeline(str(tmp_path / "in"), str(tmp_path / "out")).plan()
    assert set(plan.loops().values()) == {"retry"}
    assert [edge.upstream for edge in plan.edges if edge.feedback] == ["again"]


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [(100, 0, "100 settlements, exactly as expected"), (99, 1, "differ from 100 expected")],
)
def test_the_command_tells_right_output_from_wrong(
    tmp_path, monkeypatch: pytest.MonkeyPatch, rows: int, code: int, said: str
) -> None:
    write_payments(tmp_path / "in", rows=100, files=1, merchants=5)
    written = settlements(pq.read_table(tmp_path / "in")).slice(0, rows)
    monkeypatch.setattr(loop_data, "read_committed", lambda _: written)
    outcome = CliRunner().invoke(loop_data.main, [str(tmp_path / "in"), str(tmp_path)])
    assert outcome.exit_code == code
    assert said in outcome.output
