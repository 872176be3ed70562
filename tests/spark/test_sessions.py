"""A session that is lost is opened again if Laminar opened it; else the job fails, recoverably."""

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, JobFailedError
from laminar_core.spark import gateway
from laminar_core.spark.sessions import GivenSession, OwnSession


class Sparks:
    """Opens sessions, which are numbers here; ``lost`` are those that have gone."""

    def __init__(self, monkeypatch) -> None:
        self.opened = 0
        self.lost: set[int] = set()
        self.acts: list[str] = []
        self.refuses = False
        monkeypatch.setattr(gateway, "is_lost", lambda spark: spark in self.lost)
        monkeypatch.setattr(gateway, "forget", lambda: self.acts.append("forget"))
        monkeypatch.setattr(
            gateway, "stop", lambda spark, within_s: self.acts.append(f"stop {spark} {within_s:g}")
        )

    def open(self) -> int:
        if self.refuses:
            raise ConfigurationError(ErrorCode.INVALID_OPTION, "Spark did not start: no memory")
        self.opened += 1
        self.acts.append(f"open {self.opened}")
        return self.opened


@pytest.fixture
def sparks(monkeypatch) -> Sparks:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return Sparks(monkeypatch)


def test_a_session_that_lives_stays(sparks) -> None:
    session = OwnSession(sparks.open)
    assert (session.live(), session.live(), sparks.acts) == (1, 1, ["open 1"])


def test_a_lost_session_is_forgotten_before_the_next_one_opens(sparks) -> None:
    session = OwnSession(sparks.open)
    sparks.lost = {1}
    assert (session.live(), session.live(), session.spark) == (2, 2, 2)
    assert sparks.acts == ["open 1", "forget", "open 2"]


def test_spark_that_does_not_start_again_is_a_failure_and_may_do_so_later(sparks) -> None:
    """Goal: a restart, never a refusal; memory may be there again in a minute."""
    session = OwnSession(sparks.open)
    sparks.lost, sparks.refuses = {1}, True
    for _ in range(2):
        with pytest.raises(JobFailedError, match=r"Spark is lost: .*no memory") as caught:
            session.live()
        assert caught.value.code is ErrorCode.SPARK_LOST
    sparks.refuses = False
    assert session.live() == 2


def test_spark_that_never_started_is_refused(sparks) -> None:
    sparks.refuses = True
    with pytest.raises(ConfigurationError):
        OwnSession(sparks.open)


def test_the_session_that_is_ended_is_the_newest(sparks) -> None:
    with OwnSession(sparks.open) as session:
        sparks.lost = {1}
        session.live()
    assert sparks.acts[-1] == "stop 2 60"


def test_a_session_of_the_users_program_is_never_replaced(sparks) -> None:
    session = GivenSession(7)
    assert (session.live(), session.can_be_renewed) == (7, False)
    sparks.lost = {7}
    with pytest.raises(JobFailedError, match="start the program again") as caught:
        session.live()
    assert (caught.value.code, caught.value.exit_code) == (ErrorCode.SPARK_LOST, 1)
    assert sparks.acts == []


def test_below_spark_submit_there_is_no_other_jvm(sparks, monkeypatch) -> None:
    session = OwnSession(sparks.open)
    assert session.can_be_renewed
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert not session.can_be_renewed


def test_a_session_can_be_replaced_on_request(sparks, monkeypatch) -> None:
    session = OwnSession(sparks.open)
    session.renew()
    assert (session.live(), sparks.acts) == (2, ["open 1", "stop 1 60", "forget", "open 2"])
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session.renew()
    assert session.live() == 2
    given = GivenSession(7)
    given.renew()
    assert given.live() == 7
