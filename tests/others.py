"""Values of other types than an argument has, and what happens when they are passed."""

import inspect
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import LaminarError
from laminar_core.operators import agg, windows

OTHERS = (
    None, True, -1, 1.5, float("nan"), "", "v", "1 minute", b"v", [], ["nope"], {}, {"v": 1},
    {5: 1}, agg.count(), pc.field("v"), lambda batch: batch, object(), CollectSink(), CollectSink,
    windows, pa.schema([("v", pa.int64())]), windows.tumbling("1 minute"),
)  # fmt: skip


def refusal(function: Callable[..., object], *given: object, **named: object) -> str:
    """Call it; return why it refused that, or nothing if it did not."""
    try:
        function(*given, **named)
    except LaminarError as error:
        return str(error)
    return ""


def parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that can be given by name."""
    every = inspect.signature(function).parameters.values()
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return {each.name: each for each in every if each.kind in kinds}
