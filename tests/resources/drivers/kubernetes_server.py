"""Answers like the API server of Kubernetes, for Jobs and pods of one namespace."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

NAMESPACE = "streams"
_BATCH, _CORE = f"/apis/batch/v1/namespaces/{NAMESPACE}/", f"/api/v1/namespaces/{NAMESPACE}/"


class KubernetesServer:
    """The objects of the namespace, and the rights that the caller lacks."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.forbidden: set[tuple[str, str]] = set()
        self.fails_with: int | None = None
        self.acts: list[tuple[str, str]] = []
        """Verb and name of what changed something, as far as it was allowed."""
        self.before_create: Callable[[], None] = lambda: None
        self._uids = count(1)

    def create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.before_create()
        name = body["metadata"]["name"]
        if name in self.jobs:
            return _status(409, f'jobs.batch "{name}" already exists')
        body["metadata"]["uid"] = f"uid-{next(self._uids)}"
        self.jobs[name] = {"status": {}, **body}
        self.acts.append(("create", name))
        return 201, self.jobs[name]

    def delete(self, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if name not in self.jobs:
            return _status(404, f'jobs.batch "{name}" not found')
        if body["preconditions"]["uid"] != self.jobs[name]["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        assert body["propagationPolicy"] == "Background"
        del self.jobs[name]
        self.pods = [p for p in self.pods if _labels(p)["batch.kubernetes.io/job-name"] != name]
        self.acts.append(("delete", name))
        return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def add_pod(self, job: str, phase: str = "Running", **container: Any) -> None:
        """``container``: its state, such as ``waiting={"reason": …}``."""
        labels = {"batch.kubernetes.io/job-name": job}
        status = {"phase": phase}
        if container:
            base = {"name": "driver", "image": "i", "imageID": "", "ready": False}
            status["containerStatuses"] = [base | {"restartCount": 0, "state": container}]
        meta = {"name": f"{job}-x", "labels": labels, "creationTimestamp": "2026-11-21T12:00:00Z"}
        self.pods.append({"metadata": meta, "status": status})

    def end_job(self, name: str, condition: str) -> None:
        found = {"type": condition, "status": "True"}
        self.jobs[name]["status"] = {"conditions": [found]}

    def answer(self, method: str, url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        path, query = urlparse(url).path, parse_qs(urlparse(url).query)
        base = _BATCH if path.startswith(_BATCH) else _CORE
        resource, _, name = path.removeprefix(base).partition("/")
        verb = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list"}[method]
        if self.fails_with is not None:
            return _status(self.fails_with, "etcd has no leader")
        if (verb, resource) in self.forbidden:
            return _status(403, f'{resource} is forbidden: User "sa" cannot {verb} it')
        if verb == "create":
            return self.create(body)
        if verb == "delete":
            return self.delete(name, body)
        if verb == "get":
            found = self.jobs.get(name)
            return (200, found) if found else _status(404, f'jobs.batch "{name}" not found')
        wanted = dict(part.split("=") for part in query["labelSelector"][0].split(","))
        every = self.pods if resource == "pods" else list(self.jobs.values())
        return 200, {"items": [each for each in every if wanted.items() <= _labels(each).items()]}


def _labels(found: dict[str, Any]) -> dict[str, str]:
    return found["metadata"]["labels"]


def _status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


@contextmanager
def serving(server: KubernetesServer, folder: Path) -> Iterator[Path]:
    """Serve on loopback; the value is a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            code, found = server.answer(self.command, self.path, body)
            data = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    path = folder / "kubeconfig.json"
    path.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{http.server_port}")))
    try:
        yield path
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _kubeconfig(url: str) -> dict[str, Any]:
    context = {"cluster": "here", "user": "me", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": context}],
    }
