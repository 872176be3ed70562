"""Options of ``laminar run`` about checkpoints; the command gets one ``CheckpointConfig``."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from laminar_core.cli.options import BYTES, BYTES_OR_ZERO, DURATION, store_option
from laminar_core.driver.scrub import SCRUB_BYTES_PER_SECOND
from laminar_core.pipeline import CheckpointConfig
from laminar_core.pipeline.state_config import StateConfig
from laminar_core.plan.state_options import STATE_MEMORY_BYTES
from laminar_core.protocol.unaligned import UnalignedCheckpointConfig
from laminar_core.retention.config import RetentionConfig
from laminar_core.units import duration_ms

_DEFAULTS = UnalignedCheckpointConfig()

_OPTIONS = (
    store_option,
    click.option(
        "--checkpoint-interval",
        type=DURATION,
        default="10 seconds",
        show_default=True,
        help="Between two triggers.",
    ),
    click.option(
        "--checkpoint-timeout",
        type=DURATION,
        default="10 minutes",
        show_default=True,
        help="A checkpoint that takes longer is given up.",
    ),
    click.option(
        "--sync-timeout",
        type=DURATION,
        default="10 seconds",
        show_default=True,
        help="A checkpoint that stops a worker for longer is given up.",
    ),
    click.option(
        "--min-pause", type=DURATION, help="Between the end of a checkpoint and the next trigger."
    ),
    click.option(
        "--tolerable-failures",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        help="Failed checkpoints in a row that the job survives.",
    ),
    click.option(
        "--alignment-timeout",
        type=DURATION,
        help="From a checkpoint's creation until its barriers overtake  [default: 30 seconds].",
    ),
    click.option(
        "--unaligned/--aligned",
        "overtakes",
        default=None,
        help="Barriers overtake from the start, or never  [default: after the timeout].",
    ),
    click.option(
        "--max-inflight",
        "max_inflight_bytes",
        type=BYTES,
        default=_DEFAULTS.max_inflight_buffer_bytes,
        show_default="512MiB",
        help="Per queue; a checkpoint that would hold more is given up.",
    ),
    click.option(
        "--scrub-rate",
        type=BYTES_OR_ZERO,
        default=SCRUB_BYTES_PER_SECOND,
        show_default="1MiB",
        help="Bytes a second of stored files that are read again, to find damage; 0: none.",
    ),
    click.option(
        "--inflight-compression",
        type=click.Choice(["none", "lz4", "zstd"]),
        default="none",
        show_default=True,
        help="Of in-flight data in the store.",
    ),
    click.option(
        "--keep-last",
        type=click.IntRange(min=1),
        help="Delete older checkpoints than so many, of all runs, while the job runs  [default: of "
        "runs without --keep-last or --keep-all, all but the last 10 and the newest of each of 24 "
        "hours and 7 days].",
    ),
    click.option("--keep-all", is_flag=True, help="Delete no checkpoint while the job runs."),
    click.option(
        "--snapshots",
        type=click.Choice(["full", "incremental", "changelog"]),
        default="incremental",
        show_default=True,
        help="What a checkpoint writes of keyed state; changelog uploads changes all the time.",
    ),
    click.option(
        "--state-compression",
        type=click.Choice(["none", "lz4", "zstd"]),
        default="none",
        show_default=True,
        help="Of state in the store.",
    ),
    click.option(
        "--state-backend",
        type=click.Choice(["memory", "rocksdb"]),
        default="memory",
        show_default=True,
        help="Where the state of windows is; rocksdb takes more than fits in memory.",
    ),
    click.option(
        "--state-memory",
        type=BYTES,
        default=STATE_MEMORY_BYTES,
        show_default="256MiB",
        help="Of each worker, for rocksdb.",
    ),
    click.option(
        "--state-directory",
        metavar="PATH",
        help="Of the working files of rocksdb, on a local disk  [default: Spark's local folders].",
    ),
)


def checkpoint_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; what they say becomes the argument ``checkpoint``."""

    @wraps(command)
    def with_config(*args: Any, **values: Any) -> None:  # noqa: ANN401 - as click calls it
        command(*args, checkpoint=_config(values), **values)

    wrapped = with_config
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def _config(values: dict[str, Any]) -> CheckpointConfig:
    """Take the options of this module out of ``values``."""
    take = values.pop
    compression = take("inflight_compression")
    of_state = take("state_compression")
    return CheckpointConfig(
        store=take("store"),
        interval=take("checkpoint_interval"),
        timeout=take("checkpoint_timeout"),
        sync_timeout=take("sync_timeout"),
        min_pause=take("min_pause"),
        tolerable_failures=take("tolerable_failures"),
        unaligned=_unaligned(
            take("overtakes"), take("alignment_timeout"), take("max_inflight_bytes")
        ),
        inflight_compression=None if compression == "none" else compression,
        state=StateConfig(
            snapshots=take("snapshots"),
            compression=None if of_state == "none" else of_state,
            backend=take("state_backend"),
            memory_bytes=take("state_memory"),
            directory=take("state_directory"),
        ),
        retention=_retention(take("keep_last"), keep_all=take("keep_all")),
        scrub_bytes_per_second=take("scrub_rate"),
    )


def _retention(keep_last: int | None, *, keep_all: bool) -> RetentionConfig | None:
    if keep_last is None:
        return None if keep_all else RetentionConfig.default()
    if keep_all:
        raise click.UsageError("give --keep-last or --keep-all, not both")
    return RetentionConfig(keep_last=keep_last, savepoints="like-others")


def _unaligned(
    overtakes: bool | None,  # noqa: FBT001 - three answers to one question
    timeout: str | None,
    max_inflight_bytes: int,
) -> UnalignedCheckpointConfig:
    if overtakes is not None and timeout is not None:
        said = "--unaligned" if overtakes else "--aligned"
        when = "from the start" if overtakes else "never"
        raise click.UsageError(
            f"with {said} barriers overtake {when}: leave it out, or --alignment-timeout"
        )
    threshold_ms = _DEFAULTS.alignment_timeout_threshold_ms
    return UnalignedCheckpointConfig(
        enabled=overtakes is not False,
        alignment_timeout_threshold_ms=threshold_ms if timeout is None else duration_ms(timeout),
        max_inflight_buffer_bytes=max_inflight_bytes,
        force_unaligned=overtakes is True,
    )
