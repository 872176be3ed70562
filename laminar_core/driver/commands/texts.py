"""Parse users' requests to a running job, and describe its answers."""

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.protocol.commands import RequestedMode
from laminar_core.records.commands import ControlResult
from laminar_core.units import duration_ms


def requested_mode(text: str) -> RequestedMode | int:
    """Parse an alignment mode; a number is the time in milliseconds until barriers overtake.

    >>> requested_mode("5 seconds")
    5000

    Raises:
        ConfigurationError: it is none of the words, and no time.
    """
    if text == "aligned" or text == "unaligned" or text == "default":  # noqa: PLR1714 - narrows
        return text
    try:
        return duration_ms(text)
    except ConfigurationError as error:
        raise ConfigurationError(
            error.code,
            f"the mode is aligned, unaligned, default, or a time as in '5 seconds': {error}",
        ) from error


def describe_result(result: ControlResult) -> str:
    """Describe the result of a command, or why it was not carried out."""
    if result.outcome != "completed":
        return result.reason
    if result.savepoint is not None:
        return f"checkpoint {result.checkpoint_id} is the savepoint {result.savepoint}"
    if result.checkpoint_id is not None:
        also = f", {result.reason}" if result.reason else ""
        return f"checkpoint {result.checkpoint_id} completed{also}"
    if "alignment_timeout_ms" in result.details:
        return _describe_mode(result)
    return result.reason or "done"


def _describe_mode(result: ControlResult) -> str:
    timeout_ms = result.details["alignment_timeout_ms"]
    if timeout_ms is None:
        return "checkpoints align from now on"
    when = "at once" if timeout_ms == 0 else f"after {timeout_ms} ms"
    edges, always = result.details["edges"], result.details["edges_always_aligned"]
    but = f"; {always} of {edges} edges always align" if always else ""
    return f"barriers overtake {when} from now on{but}"


def require_done(job: str, number: int, result: ControlResult) -> None:
    """Raise unless command ``number`` completed.

    Raises:
        ConfigurationError: it was refused, or expired.
        LaminarError: it failed, or its outcome is unknown.
    """
    what = f"{result.outcome} command {number} for job {job}: {result.reason}"
    match result.outcome:
        case "completed":
            return
        case "refused" | "expired":
            raise ConfigurationError(ErrorCode.COMMAND_NOT_DONE, what)
        case "failed" | "interrupted":
            raise LaminarError(ErrorCode.COMMAND_NOT_DONE, what)
