"""Two keyed streams whose rows meet in a process function: ``left.connect(right).process(...)``."""

from typing import TYPE_CHECKING

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.process.connected import (
    ConnectedProcess,
    ProcessConnected,
    ProcessInput,
)
from laminar_core.pipeline.event_time import TimeColumn
from laminar_core.records.paths import check_operator_id

if TYPE_CHECKING:
    from laminar_core.pipeline.keyed import KeyedStream
    from laminar_core.pipeline.stream import Stream


class ConnectedStreams:
    """Two keyed streams; equal keys meet."""

    def __init__(self, left: "KeyedStream", right: "KeyedStream") -> None:
        self._left = left
        self._right = right

    def process(
        self,
        name: str,
        process: ConnectedProcess,
        *,
        time: str | tuple[str, str] | None = None,
    ) -> "Stream":
        """Run code of your own over the rows of both; see ``ConnectedProcess``.

        ``process`` has ``process_left`` and ``process_right`` for the rows of each stream, and in
        all else is like a process function of one stream. ``time``: the event time, a column of
        both or one of each, by default the watermark's. Event time is the lesser one of both.

        Raises:
            ConfigurationError: keys differ in number or type, a stream lacks a column, or event
                time is needed and a stream has none.
        """
        check_operator_id(name)
        is_whole = isinstance(process, ConnectedProcess)  # pyright: ignore[reportUnnecessaryIsInstance]
        if isinstance(process, type) or not is_whole:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"process {name!r} needs an object with state, schema, process_left and"
                f" process_right, and is given {process!r}",
            )
        left_time, right_time = time if isinstance(time, tuple) else (time, time)
        inputs = (_input(self._left, left_time), _input(self._right, right_time))
        operator = ProcessConnected(name, inputs[0].keys, process, inputs)
        return self._left.rows().connect(self._right.rows(), operator=operator)


def _input(keyed: "KeyedStream", time: str | None) -> ProcessInput:
    column, lag_us = process_time(keyed.rows(), time) or (None, 0)
    return ProcessInput(keyed.columns, column, lag_us)


def process_time(stream: "Stream", time: str | None) -> TimeColumn | None:
    """Return the event time of a process function; None: it has none.

    Raises:
        ConfigurationError: the watermark does not apply to this column (INVALID_PIPELINE).
    """
    known = stream.event_time
    if known is not None and (time or known.default):
        return known.column(time)
    return None if time is None else TimeColumn(time, 0)
