"""Operators: batch in, batch out."""

from laminar_core.aggregates.user_aggregates import UserAggregate
from laminar_core.codec.stable_hash import hash_columns
from laminar_core.operators import agg, windows
from laminar_core.operators.base import (
    OperatorSpec,
    OperatorSubtask,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.state.rescaling import Redistribution

__all__ = [
    "OperatorSpec",
    "OperatorSubtask",
    "Redistribution",
    "Snapshot",
    "StateTable",
    "SubtaskContext",
    "UserAggregate",
    "agg",
    "hash_columns",
    "windows",
]
