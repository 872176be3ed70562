"""Errors keep their meaning on their way from a worker to the user."""

import pytest
from pyspark.serializers import CPickleSerializer

from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    IncompatibleStateError,
    LaminarError,
)


def classes_of(base: type[LaminarError]) -> list[type[LaminarError]]:
    return [base] + [leaf for child in base.__subclasses__() for leaf in classes_of(child)]


@pytest.mark.parametrize("error_class", classes_of(LaminarError))
def test_an_error_survives_the_way_from_a_worker_to_the_driver(error_class) -> None:
    spark_serializer = CPickleSerializer()
    error = error_class(ErrorCode.STORE_IO, "the disk is gone: put it back")
    arrived = spark_serializer.loads(spark_serializer.dumps(error))
    assert (type(arrived), arrived.code, str(arrived)) == (error_class, error.code, str(error))


def test_every_error_ends_the_command_with_a_failure() -> None:
    assert all(error_class.exit_code > 0 for error_class in classes_of(LaminarError))


def test_state_that_does_not_fit_is_reported_like_any_other_wrong_request() -> None:
    assert IncompatibleStateError.exit_code == ConfigurationError.exit_code == 2
