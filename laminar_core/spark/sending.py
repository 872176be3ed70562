"""Whether Spark can send a pipeline to its workers."""

# cloudpickle has no types for its arguments.
# pyright: reportUnknownMemberType=false

from collections.abc import Sized

from pyspark import cloudpickle

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.plan.plan import Plan


def refuse_unsendable(plan: Plan) -> None:
    """Accept a pipeline that workers can get, in the form in which Spark sends it.

    Raises:
        ConfigurationError: a source, a sink or a function of the user holds something that exists
            in this process only, such as a lock, a connection or a session (INVALID_PIPELINE).
    """
    for vertex in plan.vertices:
        for operator_id, member in vertex.members():
            try:
                cloudpickle.dump(member, _Nowhere())
            except Exception as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"{operator_id} cannot be sent to the workers: {reason}; make what it uses"
                    " (a connection, a lock, a session) inside its function, when that is called",
                ) from error


class _Nowhere:
    """A file that keeps nothing: only whether it can be written matters, and it may be large."""

    def write(self, data: Sized) -> int:
        return len(data)
