"""Ending applications of dead drivers: against managers that answer as documented."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from laminar_core.records.spark_application import SparkApplication
from laminar_core.spark.applications import (
    Answer,
    application_of,
    end_application,
    http_request,
    yarn_managers,
)

STANDALONE = "spark://m1:7077"


def application(name: str = "app-1", master: str = STANDALONE) -> SparkApplication:
    return SparkApplication(application_id=name, master=master)


class Master:
    """Spark's standalone master; ``form`` is False with ``spark.ui.killEnabled=false``."""

    def __init__(
        self, *active: str, status: str = "ALIVE", refuses: bool = False, form: bool = True
    ) -> None:
        self.active, self.status, self.refuses, self.form = set(active), status, refuses, form
        self.posted: list[str] = []

    def page(self) -> bytes:
        """The overview, with one form for each application."""
        forms = (
            '<form action="app/kill/" method="POST">'
            f'<input type="hidden" name="id" value="{each}"/>'
            '<input type="hidden" name="terminate" value="true"/>'
            '<input type="hidden" name="csrfToken" value="c57a"/></form>'
            for each in sorted(self.active)
        )
        return "".join(forms).encode() if self.form else b"<p>Running applications</p>"

    def __call__(self, method: str, path: str, body: bytes | None) -> Answer:
        if (method, path) == ("GET", "/"):
            return Answer(200, self.page())
        if method == "GET":
            assert path == "/json/"
            apps = [{"id": each, "name": "laminar"} for each in sorted(self.active)]
            return Answer(200, json.dumps({"status": self.status, "activeapps": apps}).encode())
        assert (method, path) == ("POST", "/app/kill/")
        fields = parse_qs((body or b"").decode())
        assert (fields["terminate"], fields["csrfToken"]) == (["true"], ["c57a"])
        self.posted += fields["id"]
        if not self.refuses:
            self.active -= set(fields["id"])
        return Answer(302, b"")


class ResourceManager:
    """YARN's resource manager: ``GET`` and ``PUT`` of an application's state."""

    def __init__(self, state: str | None, put_status: int = 202) -> None:
        self.state, self.put_status, self.puts = state, put_status, []

    def __call__(self, method: str, path: str, body: bytes | None) -> Answer:
        assert urlsplit(path).path == "/ws/v1/cluster/apps/application_1_0001/state"
        assert parse_qs(urlsplit(path).query) == {"user.name": ["ada"]}
        if self.state is None:
            return Answer(404, b'{"RemoteException": {"exception": "NotFoundException"}}')
        if method == "PUT":
            self.puts.append(json.loads(body or b""))
            return Answer(self.put_status, b'{"state": "RUNNING"}')
        return Answer(200, json.dumps({"state": self.state}).encode())


def network(**hosts):
    """Return a way to send requests to these hosts; others do not answer."""

    def request(method: str, url: str, body: bytes | None, content_type: str) -> Answer:
        del content_type
        parts = urlsplit(url)
        if parts.netloc not in hosts:
            raise ConnectionRefusedError(parts.netloc)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return hosts[parts.netloc](method, path, body)

    return request


def end(what: SparkApplication, own: SparkApplication | None, settings=None, **hosts):
    return end_application(what, own, (settings or {}).get, "ada", network(**hosts))


def test_an_application_of_a_standalone_master_is_ended():
    master = Master("app-1", "app-2")
    ending = end(application(), application("app-2"), **{"m1:8080": master})
    assert (ending.outcome, master.posted, master.active) == ("ended", ["app-1"], {"app-2"})


def test_the_active_one_of_several_masters_is_asked_on_the_port_that_is_set():
    standby, active = Master("app-1", status="STANDBY"), Master("app-1")
    both = "spark://m1:7077,m2:7077,m3:7077"
    ending = end(
        application(master=both),
        application("app-2", both),
        {"spark.master.ui.port": "9090"},
        **{"m1:9090": standby, "m3:9090": active},
    )
    assert (ending.outcome, standby.posted, active.posted) == ("ended", [], ["app-1"])


def test_an_application_that_is_over_is_left_alone():
    master = Master("app-2")
    assert end(application(), application("app-2"), **{"m1:8080": master}).outcome == "gone"
    assert master.posted == []


def test_a_master_that_refuses_or_does_not_answer_is_reported_with_what_to_do():
    refusing = end(
        application(), application("app-2"), **{"m1:8080": Master("app-1", refuses=True)}
    )
    silent = end(application(), application("app-2"))
    locked = end(application(), application("app-2"), **{"m1:8080": Master("app-1", form=False)})
    assert refusing.outcome == silent.outcome == locked.outcome == "left"
    assert "http://m1:8080 does not offer to end it" in locked.reason
    assert "http://m1:8080 refuses to end it" in refusing.reason
    assert "http://m1:8080 does not answer" in silent.reason
    for each in (refusing, silent, locked):
        assert "spark.ui.killEnabled" in each.reason
        assert "\n" not in each.reason


def test_neither_the_own_application_nor_one_of_another_master_is_ended():
    master = Master("app-1")
    assert end(application(), application(), **{"m1:8080": master}).outcome == "gone"
    for own in (application("app-2", "spark://other:7077"), None):
        assert end(application(), own, **{"m1:8080": master}).outcome == "left"
    assert master.posted == []


YARN = {"yarn.resourcemanager.webapp.address": "rm:8088"}


@pytest.mark.parametrize(
    ("manager", "outcome", "puts"),
    [
        (ResourceManager("RUNNING"), "ended", [{"state": "KILLED"}]),
        (ResourceManager("RUNNING", 200), "ended", [{"state": "KILLED"}]),
        (ResourceManager("KILLED"), "gone", []),
        (ResourceManager(None), "gone", []),
        (ResourceManager("ACCEPTED", 403), "left", [{"state": "KILLED"}]),
    ],
    ids=["running", "killed at once", "over", "unknown", "not allowed"],
)
def test_an_application_in_yarn(manager: ResourceManager, outcome: str, puts: list):
    dead = application("application_1_0001", "yarn")
    ending = end(dead, application("application_1_0002", "yarn"), YARN, **{"rm:8088": manager})
    assert (ending.outcome, manager.puts) == (outcome, puts)
    assert ending.reason == "" or "yarn application -kill application_1_0001" in ending.reason


def test_a_manager_that_stands_by_is_passed_over():
    settings = {
        "yarn.resourcemanager.ha.rm-ids": "a, b",
        "yarn.resourcemanager.webapp.address.a": "rm-a:8088",
        "yarn.resourcemanager.hostname.b": "rm-b",
    }
    assert list(yarn_managers(settings.get)) == ["http://rm-a:8088", "http://rm-b:8088"]
    dead = application("application_1_0001", "yarn")
    active = ResourceManager("RUNNING")
    hosts = {"rm-a:8088": lambda *_: Answer(307, b"This is standby RM."), "rm-b:8088": active}
    assert (
        end(dead, application("application_1_0002", "yarn"), settings, **hosts).outcome == "ended"
    )
    assert len(active.puts) == 1


def test_addresses_of_yarn_over_tls_and_without_any():
    secure = {"yarn.http.policy": "HTTPS_ONLY", "yarn.resourcemanager.hostname": "rm"}
    assert list(yarn_managers(secure.get)) == ["https://rm:8090"]
    assert list(yarn_managers({"yarn.resourcemanager.webapp.address": "0.0.0.0:8088"}.get)) == []


def test_pods_go_with_their_driver():
    dead, own = (application(name, "k8s://https://api") for name in ("spark-1", "spark-2"))
    assert end(dead, own).outcome == "gone"


def test_only_a_cluster_has_an_application():
    spark = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1"))
    assert application_of(spark, "local[2]") is None
    assert application_of(spark, "spark://m1:7077") == application()
    assert application_of(SimpleNamespace(), "spark://m1:7077") is None


class Handler(BaseHTTPRequestHandler):
    """Answers with what it got, and with a redirect below /moved."""

    def _answer(self) -> None:
        moved = self.path == "/moved"
        length = int(self.headers.get("Content-Length", 0))
        body = f"{self.command} {self.path} ".encode() + self.rfile.read(length)
        self.send_response(302 if moved else 403 if self.path == "/no" else 200)
        if moved:
            self.send_header("Location", "/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the names that the library calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_every_answer_is_an_answer_and_redirects_are_not_followed(server: str, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    form = "application/x-www-form-urlencoded"
    assert http_request("PUT", f"{server}/x", b"1", form) == Answer(200, b"PUT /x 1")
    assert http_request("POST", f"{server}/moved", b"a=1", form) == Answer(302, b"POST /moved a=1")
    assert http_request("GET", f"{server}/no", None, "") == Answer(403, b"GET /no ")
    assert Answer(200, b"[]").json() == Answer(200, b"<html>").json() == {}
    assert Answer(200, b"[" * 100_000).json() == {}
