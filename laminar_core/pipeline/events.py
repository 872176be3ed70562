"""The events that a running job passes to its listener: one class for each.

A listener takes each event, and looks at those that it wants::

    def listener(event: JobEvent) -> None:
        match event:
            case CheckpointFailed(checkpoint_id=number, reason=reason):
                print(f"checkpoint {number} failed: {reason}")
"""

from laminar_core.driver.events import (
    ApplicationEnded,
    ApplicationLeft,
    CheckpointCompleted,
    CheckpointFailed,
    CleanUpFailed,
    CommandAnswered,
    CommitDelayed,
    DataFlowing,
    FilesDamaged,
    Finished,
    GenerationFailed,
    GenerationStarted,
    JobEvent,
    JobListener,
    NotEncrypted,
    OperatorAtWork,
    ProgressMade,
    RestoreProgressed,
    SinkWarning,
    SplitsNotFound,
    StandbyEnded,
    StandbyTakesOver,
    StandbyWaiting,
    StoreBack,
    StoreLost,
    ThresholdTooLow,
    UnreachablePair,
    WorkersRunning,
)

__all__ = [
    "ApplicationEnded",
    "ApplicationLeft",
    "CheckpointCompleted",
    "CheckpointFailed",
    "CleanUpFailed",
    "CommandAnswered",
    "CommitDelayed",
    "DataFlowing",
    "FilesDamaged",
    "Finished",
    "GenerationFailed",
    "GenerationStarted",
    "JobEvent",
    "JobListener",
    "NotEncrypted",
    "OperatorAtWork",
    "ProgressMade",
    "RestoreProgressed",
    "SinkWarning",
    "SplitsNotFound",
    "StandbyEnded",
    "StandbyTakesOver",
    "StandbyWaiting",
    "StoreBack",
    "StoreLost",
    "ThresholdTooLow",
    "UnreachablePair",
    "WorkersRunning",
]
