"""Who holds the cores of a standalone cluster is read from the page of its master."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from laminar_core.spark.facts import SparkFacts
from laminar_core.spark.standalone import (
    Application,
    StandaloneCluster,
    cores_line,
    described,
    has_forgotten,
)

PAGE = {
    "url": "spark://127.0.0.1:17077",
    "workers": [],
    "aliveworkers": 2,
    "cores": 8,
    "coresused": 7,
    "activeapps": [
        {"id": "app-1", "name": "nightly", "cores": 6, "user": "u", "state": "RUNNING"},
        {"id": "app-2", "name": "payments", "cores": 1, "user": "u", "state": "RUNNING"},
        {"id": "app-3", "name": "idle", "cores": 0, "user": "u", "state": "WAITING"},
    ],
    "status": "ALIVE",
}


@pytest.fixture
def port() -> Iterator[int]:
    """A server that shows what a master shows."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/json/"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(PAGE).encode() if known else b"no")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def facts(master: str, port: int) -> SparkFacts:
    return SparkFacts(master, {"spark.master.ui.port": str(port)})


def test_the_applications_that_hold_cores_are_named(port: int) -> None:
    line = cores_line(facts("spark://127.0.0.1:7077", port), "app-2")
    assert line == ("7 of the cluster's 8 cores are taken: nightly (app-1) 6, this job 1")


def test_a_master_that_shows_nothing_says_nothing(port: int) -> None:
    assert cores_line(facts("yarn", port), "") == ""
    assert cores_line(facts("spark://", port), "") == ""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        free = silent.server_address[1]
    assert cores_line(facts("spark://127.0.0.1:7077", free), "") == ""


def test_a_standby_master_is_passed_over(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGE, "status", "STANDBY")
    assert cores_line(facts("spark://127.0.0.1:7077,127.0.0.1:7078", port), "") == ""


def test_many_applications_are_counted() -> None:
    many = tuple(Application(id=f"a{n}", name="n", cores=n) for n in range(1, 6))
    cluster = StandaloneCluster(status="ALIVE", cores=20, coresused=15, activeapps=many)
    assert described(cluster, "a5").endswith("taken: this job 5, n (a4) 4, n (a3) 3, 2 more 3")


def test_an_active_master_says_which_applications_it_knows(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = facts("spark://127.0.0.1:7077", port)
    assert not has_forgotten(at, "app-3"), "it waits for cores"
    assert has_forgotten(at, "app-4")
    monkeypatch.setitem(PAGE, "status", "RECOVERING")
    assert not has_forgotten(at, "app-4"), "it may still find it"
    assert not has_forgotten(facts("yarn", port), "app-4")
