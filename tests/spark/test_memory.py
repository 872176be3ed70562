"""The budget of state is compared with the memory that an executor has for it."""

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.spark.facts import SparkFacts
from laminar_core.spark.memory import refuse_little_memory, size_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("512", 512 * MIB), ("2g", 2048 * MIB), ("64MB", 64 * MIB), ("1024k", MIB), ("", None)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size_bytes: int | None) -> None:
    assert size_of(text) == size_bytes


@pytest.mark.parametrize(
    ("master", "settings", "state_mib"),
    [
        ("local[2]", {}, 10_000),
        ("spark://h:7077", {"spark.executor.memoryOverhead": "100m"}, 10_000),
        ("yarn", {}, 384),
        ("yarn", {"spark.executor.memory": "10g"}, 1_024),
        ("k8s://h", {}, 409),
        ("k8s://h", {"spark.executor.cores": "4", "spark.task.cpus": "4"}, 384),
        ("yarn", {"spark.executor.memoryOverhead": "2g", "spark.executor.cores": "4"}, 512),
        ("yarn", {"spark.executor.memoryOverheadFactor": "0.5"}, 512),
        ("yarn", {"spark.executor.pyspark.memory": "2g", "spark.executor.cores": "2"}, 1_024),
        ("yarn", {}, 0),
    ],
)
def test_state_that_fits_is_accepted(master: str, settings, state_mib: int) -> None:
    refuse_little_memory(SparkFacts(master, settings), state_mib * MIB)


@pytest.mark.parametrize(
    ("master", "settings", "state_mib", "named"),
    [
        ("yarn", {}, 385, "an executor of 1 workers has 384m outside of its heap"),
        ("k8s://h", {}, 410, "has 409m outside of its heap"),
        (
            "yarn",
            {"spark.executor.cores": "4"},
            256,
            "set spark.executor.memoryOverhead to 2048m",
        ),
        (
            "spark://h:7077",
            {"spark.executor.pyspark.memory": "1g", "spark.executor.cores": "4"},
            257,
            "spark.executor.pyspark.memory allows 256m for each of 4 cores",
        ),
    ],
)
def test_state_that_spark_would_end_the_worker_for_is_refused(
    master: str, settings, state_mib: int, named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        refuse_little_memory(SparkFacts(master, settings), state_mib * MIB)
    assert caught.value.code is ErrorCode.SPARK_UNSUITABLE
    assert f"may take {state_mib}m (--state-memory)" in str(caught.value)
