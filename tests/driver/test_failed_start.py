"""A failed start is recorded, for every error of Laminar's and for foreign ones."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator

import botocore.exceptions
import pyarrow as pa
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JNetworkError
from pydantic import BaseModel, ValidationError

from laminar_core.driver.events import GenerationFailed
from laminar_core.driver.execution import execute
from laminar_core.driver.failed_start import (
    failed_start,
    start_error_code,
    start_error_reason,
)
from laminar_core.driver.restart import NoRestart
from laminar_core.driver.standby.stops import TakeOverGivenUp
from laminar_core.errors import (
    CheckpointDeclined,
    ConfigurationError,
    CorruptCheckpointError,
    DamagedFileError,
    DataError,
    ErrorCode,
    FencedError,
    IncompatibleStateError,
    JobFailedError,
    LaminarError,
    LinkBrokenError,
    MissingExtraError,
    ProtocolError,
    StorageUnavailable,
)
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation

EXPECTED = {
    LaminarError: ("failed", "raise"),
    ConfigurationError: ("refused", "raise"),
    IncompatibleStateError: ("refused", "raise"),
    MissingExtraError: ("refused", "raise"),
    DataError: ("failed", "raise"),
    StorageUnavailable: ("failed", "restart"),
    CorruptCheckpointError: ("failed", "raise"),
    DamagedFileError: ("failed", "raise"),
    CheckpointDeclined: ("failed", "restart"),
    FencedError: (None, "give-way"),
    JobFailedError: ("failed", "restart"),
    TakeOverGivenUp: ("failed", "restart"),
    LinkBrokenError: ("failed", "restart"),
    ProtocolError: ("failed", "raise"),
}


class _Checked(BaseModel):
    number: int


def not_a_number() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        _Checked(number="x")  # type: ignore[arg-type]
    return caught.value


FOREIGN = [
    Py4JNetworkError("Answer from Java side is empty"),
    Py4JError("An error occurred while calling o72.conf"),
    OSError(28, "No space left on device"),
    BrokenPipeError(32, "Broken pipe"),
    ConnectionRefusedError(111, "Connection refused"),
    TimeoutError(),
    socket.gaierror(-2, "Name or service not known"),
    MemoryError(),
    EOFError(),
    RecursionError("maximum recursion depth exceeded"),
    RuntimeError("can't start new thread"),
    AssertionError(),
    KeyError("offset"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ImportError("No module named x"),
    SyntaxError("bad"),
    asyncio.InvalidStateError(),
    subprocess.CalledProcessError(1, "java"),
    pa.ArrowInvalid("not a file"),
    zmq.ZMQError(24),
    botocore.exceptions.EndpointConnectionError(endpoint_url="http://x"),
    not_a_number(),
    ExceptionGroup("two", [ConfigurationError(ErrorCode.NO_JAVA, "no java")]),
]


def family(of: type[LaminarError]) -> Iterator[type[LaminarError]]:
    yield of
    for child in of.__subclasses__():
        if child.__module__.startswith("laminar_core."):
            yield from family(child)


def test_every_class_of_the_tree_has_an_expectation_here() -> None:
    assert set(family(LaminarError)) == set(EXPECTED)


@pytest.mark.parametrize("kind", EXPECTED)
def test_an_error_of_laminar_is_recorded_as_its_class_says(kind: type[LaminarError]) -> None:
    decided = failed_start(kind(ErrorCode.STORE_IO, "in a test"), asked_for=True)
    assert (decided.ending, decided.reaction) == EXPECTED[kind]


def test_only_a_configuration_error_is_a_refusal() -> None:
    refused = {kind for kind, (ending, _) in EXPECTED.items() if ending == "refused"}
    assert refused == set(family(ConfigurationError))


@pytest.mark.parametrize("kind", list(family(ConfigurationError)))
def test_what_nobody_asked_for_is_no_refusal(kind: type[LaminarError]) -> None:
    decided = failed_start(kind(ErrorCode.STORE_CREDENTIALS, "they expired"), asked_for=False)
    assert (decided.ending, decided.reaction) == ("failed", "raise")


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_an_error_of_somebody_else_is_a_failure(error: Exception) -> None:
    decided = failed_start(error, asked_for=True)
    again = isinstance(error, OSError | MemoryError)
    assert decided.ending == "failed"
    assert decided.reaction == ("restart" if again else "raise")
    assert start_error_code(error) is ErrorCode.START_FAILED
    assert type(error).__name__ in start_error_reason(error)
    assert len(start_error_reason(error).splitlines()) == 1


@given(bases=st.sets(st.sampled_from([OSError, ValueError, KeyError, JobFailedError]), max_size=1))
def test_no_class_that_comes_later_is_a_refusal_unless_it_is_a_configuration_error(bases) -> None:
    kind = type("LaterError", tuple(bases) or (Exception,), {"__init__": Exception.__init__})
    assert failed_start(kind(), asked_for=True).ending == "failed"


def break_once(monkeypatch, error: BaseException) -> None:
    """The first start of workers raises ``error``, every later one succeeds."""
    pending = [error]

    def start(*arguments, **options):
        if pending:
            raise pending.pop()
        return execute(*arguments, **options)

    monkeypatch.setattr("laminar_core.driver.supervisor.execute", start)


def outcomes(simulation: Simulation) -> list[str | None]:
    ends = [found.end for found in simulation.store.generations.summaries()]
    return [None if end is None else end.outcome for end in ends]


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_no_foreign_error_of_a_start_is_in_the_store_as_a_refusal(monkeypatch, error) -> None:
    job = windows_job(2)
    simulation = Simulation(job.plan)
    break_once(monkeypatch, error)
    if isinstance(error, OSError | MemoryError):
        assert simulation.run().outcome == "finished"
        assert outcomes(simulation) == ["failed", "finished"]
    else:
        with pytest.raises(type(error)):
            simulation.run()
        assert outcomes(simulation) == ["failed"]
        simulation.run()
    job.check()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_process_records_nothing(monkeypatch, error) -> None:
    """Goal: whoever looks finds a generation without an end and its process gone."""
    simulation = Simulation(windows_job(2).plan)
    break_once(monkeypatch, error)
    with pytest.raises(type(error)):
        simulation.run()
    assert outcomes(simulation) == [None]


def test_restarts_after_a_failed_start_are_bounded(monkeypatch) -> None:
    simulation = Simulation(windows_job(2).plan)
    break_once(monkeypatch, OSError(24, "Too many open files"))
    with pytest.raises(JobFailedError, match="Too many open files") as caught:
        simulation.run(restart=NoRestart())
    assert caught.value.code is ErrorCode.RESTARTS_EXHAUSTED
    (failed,) = [event for event in simulation.events if isinstance(event, GenerationFailed)]
    assert (failed.code, failed.restart_in_ms) == ("start-failed", None)
    assert outcomes(simulation) == ["failed"]
