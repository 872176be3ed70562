"""The name of a Spark application becomes part of a URL, so it is nothing but a name."""

import pytest

from laminar_core.records.spark_application import SparkApplication


@pytest.mark.parametrize("hostile", ["app-1&id=app-2", "../../x", "app 1", "", "a" * 300], ids=repr)
def test_an_id_that_would_be_more_than_an_id_is_refused(hostile: str):
    with pytest.raises(ValueError, match="application_id"):
        SparkApplication(application_id=hostile, master="spark://m1:7077")


@pytest.mark.parametrize("name", ["app-20261127233902-0000", "application_1_0001", "spark-4f.a_b"])
def test_the_ids_of_all_managers_are_accepted(name: str):
    assert SparkApplication(application_id=name, master="yarn").application_id == name
