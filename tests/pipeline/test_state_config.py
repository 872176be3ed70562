import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.pipeline.state_config import StateConfig
from laminar_core.plan.state_options import StateOptions


def test_the_defaults_are_those_of_the_runtime() -> None:
    assert StateConfig().options() == StateOptions()


def test_everything_reaches_the_runtime() -> None:
    config = StateConfig(
        "changelog", "250 milliseconds", 3, "zstd", "rocksdb", 64 * 1024**2, "/scratch"
    )
    expected = StateOptions("changelog", 250, 3, "zstd", "rocksdb", 64 * 1024**2, "/scratch")
    assert config.options() == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"snapshots": "delta"}, "full, incremental, changelog, not 'delta'"),
        ({"segments_max": 1}, "at least 2, not 1"),
        ({"compression": "gzip"}, "'lz4' or 'zstd', not 'gzip'"),
        ({"changelog_interval": "soon"}, "soon"),
        ({"backend": "redis"}, "memory, rocksdb, not 'redis'"),
        ({"memory_bytes": 1_000_000}, "at least 16MiB, not 1000000"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(changes, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        StateConfig(**changes)


@pytest.mark.parametrize(
    ("mode", "incremental"), [("full", False), ("incremental", True), ("changelog", True)]
)
def test_a_changelog_is_incremental(mode, incremental) -> None:
    assert StateOptions(mode).incremental is incremental
