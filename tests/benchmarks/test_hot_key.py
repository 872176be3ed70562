"""The benchmark of a hot key: half of the rows are of one key, and every barrier is a cut."""

import pyarrow as pa

from benchmarks.hot_key import Bench, rows_of, skewed_pipeline

LEFT, RIGHT = (
    pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), (value, pa.int64())])
    for value in ("amount", "price")
)


def test_pairs_of_the_hot_key_are_sent_and_barriers_cut() -> None:
    bench = Bench()
    bench.arrive(0, rows_of(LEFT, 40))
    bench.arrive(1, rows_of(RIGHT, 60))
    bench.cut()
    assert bench.cuts == 1
    while bench.task.work():
        bench.send()
    bench.send()
    assert bench.pairs >= 20 * 30, "half of each side, and more if others meet"
    assert not bench.has_rows


def test_the_job_in_spark_can_be_planned() -> None:
    assert "pairs" in {
        spec.operator_id
        for vertex in skewed_pipeline().plan().vertices
        for spec in vertex.operators
    }
