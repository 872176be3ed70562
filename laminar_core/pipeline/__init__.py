"""The builder that users write their pipelines with, and how a run is configured."""

from laminar_core.configuration import MetricsOptions, StateConfig
from laminar_core.driver.options import JobResult
from laminar_core.driver.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from laminar_core.driver.savepoint_writer import SavepointWriter
from laminar_core.pipeline.builder import LettersTo, Pipeline
from laminar_core.pipeline.config import CheckpointConfig, RunConfig
from laminar_core.pipeline.connected import ConnectedStreams
from laminar_core.pipeline.job import StreamingJob
from laminar_core.pipeline.keyed import KeyedStream, SessionStream, WindowedStream
from laminar_core.pipeline.stream import Stream
from laminar_core.protocol.dedup import Retention
from laminar_core.protocol.unaligned import UnalignedCheckpointConfig
from laminar_core.records.actor import Actor
from laminar_core.retention.config import RetentionConfig

__all__ = [
    "Actor",
    "CheckpointConfig",
    "ConnectedStreams",
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "JobResult",
    "KeyedStream",
    "LettersTo",
    "MetricsOptions",
    "NoRestart",
    "Pipeline",
    "Retention",
    "RetentionConfig",
    "RunConfig",
    "SavepointWriter",
    "SessionStream",
    "StateConfig",
    "Stream",
    "StreamingJob",
    "UnalignedCheckpointConfig",
    "WindowedStream",
]
