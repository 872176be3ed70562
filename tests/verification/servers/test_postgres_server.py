"""A PostgreSQL keeps what it committed over ``kill -9``, and is found on loopback alone."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.servers.listening import listening, processes_of
from verification.servers import postgres_server
from verification.servers.fault_proxy import Fault, FaultKind, FaultProxy
from verification.servers.kafka_broker import HOST
from verification.servers.postgres_database import PostgresDatabase, QueryFailedError
from verification.servers.postgres_server import USER, PostgresServer, why_it_cannot_run


def test_what_it_committed_is_there_after_a_kill(own_postgres: PostgresServer) -> None:
    database = PostgresDatabase(own_postgres.programs, own_postgres.port)
    database.query("CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (1)")
    before = processes_of(own_postgres.port)
    own_postgres.kill()
    assert len(before) > 1
    ended = [not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in before]
    assert all(ended), "the children, too"
    with pytest.raises(QueryFailedError, match="Connection refused"):
        database.query("SELECT 1")
    own_postgres.start()
    database.query("INSERT INTO kept VALUES (2)")
    assert database.query("SELECT id FROM kept ORDER BY id") == [["1"], ["2"]]


def test_it_is_found_on_loopback_alone_and_can_be_read_by_replication(
    new_database: Callable[[], PostgresDatabase],
) -> None:
    database = new_database()
    processes = processes_of(database.port)
    assert listening(processes) == {(HOST, database.port)}
    assert not [
        one.laddr for process in processes for one in process.net_connections("unix") if one.laddr
    ]
    asked = ("SHOW wal_level", "SHOW fsync", "SELECT current_user")
    assert database.query(*asked) == [["logical"], ["off"], [USER]]


def test_a_commit_whose_reply_is_lost_has_happened(
    new_database: Callable[[], PostgresDatabase],
) -> None:
    near = new_database()
    near.query("CREATE TABLE paid (cents int)")
    # The client waits for an answer to each request, so a piece begins with the kind of one.
    with FaultProxy(near.port, watch=lambda: lambda piece: piece[:1]) as proxy:
        far = near.through(proxy.port)
        assert far.query("SELECT 1") == [["1"]]
        proxy.arm(Fault(FaultKind.LOST_REPLY, requests=b"Q"))
        with pytest.raises(QueryFailedError, match=r"server closed the connection|reset by peer"):
            far.query("INSERT INTO paid VALUES (500)")
        assert proxy.fired == {FaultKind.LOST_REPLY: 1}
        assert near.query("SELECT cents FROM paid") == [["500"]]
        assert far.query("SELECT cents FROM paid") == [["500"]], "it strikes once"


def test_a_wrong_setting_is_an_error_that_says_why(postgres_bin: Path, tmp_path: Path) -> None:
    wrong = PostgresServer(postgres_bin, tmp_path / "wrong", {"no_such_setting": "1"})
    with pytest.raises(RuntimeError, match="no_such_setting"), wrong:
        pass
    assert wrong._cluster.exists() == (os.geteuid() != 0), "root had it in a temporary folder"


def test_it_runs_as_another_user_than_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "SPARE_USER", "no-such-user")
    reason = why_it_cannot_run()
    if os.geteuid() == 0:
        assert reason is not None
        assert "root, which cannot become no-such-user" in reason
    else:
        assert reason is None
