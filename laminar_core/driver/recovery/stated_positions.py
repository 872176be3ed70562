"""Where the sources of a part that begins anew are read from: the beginning, or a stated position.

``beginning`` is where a fresh start of the source begins, by its own options. Any other position is
a text that only the source understands, such as a time.
"""

from laminar_core.connectors.base import Source, StatesStart
from laminar_core.driver.recovery.start_texts import BEGINNING
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.plan.plan import SourceNode


def started_at(node: SourceNode, position: str | None) -> Source:
    """Return a source whose fresh start begins at a position; None: where its options say.

    Raises:
        ConfigurationError: the source cannot begin there (INVALID_OPTION).
    """
    if position is None or position == BEGINNING:
        return node.source
    if isinstance(node.source, StatesStart):
        return node.source.starting_at(position)
    raise _invalid(
        f"source {node.operator_id} cannot begin at {position!r}: {type(node.source).__name__} is"
        f" read again from its beginning only, so say --reset-from {node.operator_id}={BEGINNING}"
    )


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)
