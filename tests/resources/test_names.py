"""Names that Dagster keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.paths import JobPaths
from laminar_core.resources.names import (
    asset_key,
    checkpoint_key,
    checkpoint_of,
    checkpoint_partitions,
    job_name,
    partition_of,
    source_key,
)

NUMBERS = st.integers(1, 9_000_000_000)


def test_assets_and_jobs_carry_the_name_of_the_stream() -> None:
    assert asset_key("payments", "drill").path == ["payments", "drill"]
    assert checkpoint_key("payments").path == ["payments", "checkpoint"]
    assert source_key("payments").path == ["payments", "source"]
    assert job_name("recover") == "laminar_recover"


def test_each_stream_has_its_own_partitions() -> None:
    assert checkpoint_partitions("payments").name != checkpoint_partitions("loop").name


@given(NUMBERS, NUMBERS)
def test_partitions_sort_like_checkpoints(one: int, other: int) -> None:
    assert (partition_of(one) < partition_of(other)) == (one < other)


@given(NUMBERS)
def test_a_partition_is_called_as_the_folder_in_the_store(number: int) -> None:
    assert f"/{partition_of(number)}/" in JobPaths("job").manifest(CheckpointId(number))


@given(NUMBERS)
def test_a_partition_says_which_checkpoint_it_is(number: int) -> None:
    assert checkpoint_of(partition_of(number)) == number


@pytest.mark.parametrize("key", ["", "42", "the good one", "0000000042/", "9999999999"])
def test_a_partition_that_a_user_added_is_no_checkpoint(key: str) -> None:
    with pytest.raises(ConfigurationError, match="is no checkpoint: choose one such as 0000000042"):
        checkpoint_of(key)
