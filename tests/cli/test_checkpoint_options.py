"""What ``laminar run`` is told about checkpoints becomes one configuration."""

import click
import pytest
from click.testing import CliRunner

from laminar_core.cli.checkpoint_options import checkpoint_options
from laminar_core.pipeline import (
    CheckpointConfig,
    RetentionConfig,
    StateConfig,
    UnalignedCheckpointConfig,
)


def config_of(*words: str) -> CheckpointConfig:
    """What a command with these options gets."""
    got: list[CheckpointConfig] = []

    @click.command()
    @checkpoint_options
    @click.option("--other", default=1)
    def command(*, checkpoint: CheckpointConfig, other: int) -> None:
        del other
        got.append(checkpoint)

    CliRunner().invoke(command, ["--store", "s", *words], catch_exceptions=False)
    return got[0]


def refused(*words: str) -> str:
    @click.command()
    @checkpoint_options
    def command(*, checkpoint: CheckpointConfig) -> None:
        del checkpoint

    answer = CliRunner().invoke(command, ["--store", "s", *words])
    assert answer.exit_code == 2
    return answer.output.splitlines()[-1]


def test_by_default_it_is_what_the_library_does_and_old_checkpoints_go() -> None:
    assert config_of() == CheckpointConfig("s", retention=RetentionConfig.default())
    assert config_of("--keep-all") == CheckpointConfig("s")


def test_to_keep_all_and_the_last_ones_is_a_contradiction() -> None:
    assert "not both" in refused("--keep-all", "--keep-last", "3")


def test_every_option_has_its_place() -> None:
    words = (
        *("--checkpoint-interval", "2 seconds", "--checkpoint-timeout", "3 seconds"),
        *("--sync-timeout", "4 seconds", "--min-pause", "5 seconds", "--tolerable-failures", "6"),
        *("--alignment-timeout", "7 seconds", "--max-inflight", "8MiB"),
        *("--inflight-compression", "zstd", "--snapshots", "full"),
        *("--state-compression", "lz4", "--state-backend", "rocksdb"),
        *("--state-memory", "64MiB", "--state-directory", "/scratch"),
        *("--keep-last", "9"),
    )
    assert config_of(*words) == CheckpointConfig(
        "s",
        interval="2 seconds",
        timeout="3 seconds",
        sync_timeout="4 seconds",
        min_pause="5 seconds",
        tolerable_failures=6,
        unaligned=UnalignedCheckpointConfig(
            alignment_timeout_threshold_ms=7_000, max_inflight_buffer_bytes=8 << 20
        ),
        inflight_compression="zstd",
        retention=RetentionConfig(keep_last=9, savepoints="like-others"),
        state=StateConfig(
            snapshots="full",
            compression="lz4",
            backend="rocksdb",
            memory_bytes=64 << 20,
            directory="/scratch",
        ),
    )


@pytest.mark.parametrize(
    ("words", "timeout_ms"),
    [([], 30_000), (["--unaligned"], 0), (["--aligned"], None)],
)
def test_barriers_overtake_after_a_while_at_once_or_never(words, timeout_ms) -> None:
    assert config_of(*words).unaligned.alignment_timeout_ms == timeout_ms


@pytest.mark.parametrize(
    ("word", "when"), [("--unaligned", "from the start"), ("--aligned", "never")]
)
def test_a_timeout_beside_a_fixed_mode_is_refused(word, when) -> None:
    assert f"with {word} barriers overtake {when}" in refused(word, "--alignment-timeout", "1 hour")
