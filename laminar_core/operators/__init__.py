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
    Side,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.keyed import owned_key_groups
from laminar_core.operators.process.connected import ConnectedProcess
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.lists import KeyedLists, ListState
from laminar_core.operators.process.maps import KeyedMaps, MapState
from laminar_core.operators.process.spec import Process
from laminar_core.operators.process.values import KeyedValues, ValueState
from laminar_core.state.rescaling import Redistribution

__all__ = [
    "ConnectedProcess",
    "KeyedLists",
    "KeyedMaps",
    "KeyedValues",
    "Keys",
    "ListState",
    "MapState",
    "MultiInputSpec",
    "MultiInputSubtask",
    "OperatorSpec",
    "OperatorSubtask",
    "Process",
    "Redistribution",
    "Side",
    "Snapshot",
    "StateTable",
    "SubtaskContext",
    "Timers",
    "UserAggregate",
    "ValueState",
    "agg",
    "hash_columns",
    "key_groups_of",
    "owned_key_groups",
    "windows",
]
