"""An application of a standalone cluster takes the cores of its workers and no more."""

import pytest

from laminar_core.spark.conditions import SparkFacts, refuse_unsuitable
from laminar_core.spark.cores import with_cores

STANDALONE = "spark://m:7077"


@pytest.mark.parametrize(
    ("settings", "workers", "cores"),
    [
        ({}, 3, "3"),
        ({"spark.executor.cores": "4"}, 6, "8"),
        ({"spark.executor.cores": "4", "spark.task.cpus": "2"}, 3, "8"),
        ({"spark.task.cpus": "2"}, 3, None),
        ({"spark.executor.cores": "1", "spark.task.cpus": "2"}, 3, None),
        ({"spark.cores.max": "12"}, 3, "12"),
    ],
    ids=str,
)
def test_cores_are_those_of_the_workers(settings: dict[str, str], workers: int, cores: str | None):
    found = with_cores(settings, STANDALONE, workers)
    assert found == {**settings, **({"spark.cores.max": cores} if cores else {})}
    if cores:
        refuse_unsuitable(SparkFacts(STANDALONE, found), workers)


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://api"])
def test_other_masters_have_no_such_setting(master: str):
    assert with_cores({}, master, 3) == {}
