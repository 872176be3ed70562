"""Operators: batch in, batch out."""

from laminar_core.aggregates.user_aggregates import UserAggregate
from laminar_core.codec.key_groups import key_groups_of
from laminar_core.codec.stable_hash import hash_columns
from laminar_core.operators import agg, windows
from laminar_core.operators.base import (
    MultiInputSpec,
    MultiInputSubtask,
    OperatorSpec,
    OperatorSubtask,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.keyed import owned_key_groups
from laminar_core.state.rescaling import Redistribution

__all__ = [
    "MultiInputSpec",
    "MultiInputSubtask",
    "OperatorSpec",
    "OperatorSubtask",
    "Redistribution",
    "Snapshot",
    "StateTable",
    "SubtaskContext",
    "UserAggregate",
    "agg",
    "hash_columns",
    "key_groups_of",
    "owned_key_groups",
    "windows",
]
