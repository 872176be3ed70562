"""An HTTP proxy in front of a store's server that fails on order, request by request."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

_NOT_FORWARDED = {"expect", "connection", "transfer-encoding"}


class Effect(Enum):
    RESET = auto()
    """The connection breaks; nothing happens."""
    LOSE_ANSWER = auto()
    """All happens, and the connection breaks."""
    HALF_ANSWER = auto()
    """All happens, and the connection breaks after ``share`` of the answer."""
    REFUSE = auto()
    """Nothing happens; the answer is ``status`` and ``code``."""
    SAY = auto()
    """Nothing happens; the answer is ``status``, ``headers`` and ``body``, whatever they say."""
    REFUSE_AFTERWARDS = auto()
    """All happens; the answer is ``status`` and ``code`` all the same."""
    HOLD = auto()
    """Nothing happens, and no answer comes until the proxy is closed."""
    IGNORE_CONDITIONS = auto()
    """The server never sees a condition."""
    IGNORE_RANGE = auto()
    """The server sees neither a range nor its condition."""
    CHANGE_BEFORE = auto()
    """``change`` is called, then all happens."""


_HIDDEN = {
    Effect.IGNORE_CONDITIONS: {"if-none-match", "if-match"},
    Effect.IGNORE_RANGE: {"range", "if-match"},
}


@dataclass
class Fault:
    """Happens to requests ``first`` to ``last`` that are ``operation`` on a matching ``key``.

    ``operation`` "*" is any; of these requests ``every`` so many-th is struck.
    """

    operation: str
    effect: Effect
    status: int = 500
    code: str = "InternalError"
    message: str = "scripted"
    first: int = 1
    last: int = 1
    every: int = 1
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    share: float = 0.5
    change: Callable[[], object] = bool
    matched: int = 0

    def __post_init__(self) -> None:
        assert self.first <= self.last, "it would never happen"

    def is_due(self, operation: str, path: str) -> bool:
        if self.operation not in {operation, "*"} or self.key not in path:
            return False
        self.matched += 1
        in_turn = (self.matched - self.first) % self.every == 0
        return in_turn and self.first <= self.matched <= self.last


def operation_of(method: str, target: str) -> str:
    query = urlsplit(target).query
    match method:
        case "PUT":
            return "UploadPart" if "partNumber=" in query else "PutObject"
        case "POST":
            return "CompleteMultipartUpload" if "uploadId=" in query else "CreateMultipartUpload"
        case "DELETE":
            return "AbortMultipartUpload" if "uploadId=" in query else "DeleteObject"
        case "GET":
            return "ListObjectsV2" if "list-type=" in query else "GetObject"
    return "HeadObject"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: "FaultProxy"

    def log_message(self, *_args):
        pass

    def _serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.fault_for(self.proxy.operation_of(self.command, self.path), self.path)
        effect = fault.effect if fault else None
        if effect is Effect.HOLD:
            self.proxy.held.set()
            self.proxy.closing.wait()
        if effect is Effect.CHANGE_BEFORE:
            fault.change()
        answer = None
        if effect not in {Effect.RESET, Effect.REFUSE, Effect.SAY, Effect.HOLD}:
            answer = self._forward(_HIDDEN.get(effect, set()) if effect else set())
        match effect:
            case Effect.RESET | Effect.LOSE_ANSWER | Effect.HOLD:
                self._break()
            case Effect.HALF_ANSWER:
                status, headers, data = answer
                part = data[: int(len(data) * fault.share)]
                self._answer(status, headers, part, announced=len(data))
                self._break()
            case Effect.REFUSE | Effect.REFUSE_AFTERWARDS:
                self._refuse(fault)
            case Effect.SAY:
                data = b"" if self.command == "HEAD" else fault.body
                self._answer(fault.status, fault.headers, data)
            case _:
                self._answer(*answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _forward(self, without):
        kept = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _NOT_FORWARDED | without
        }
        with closing(HTTPConnection(*self.proxy.upstream, timeout=30)) as upstream:
            upstream.request(self.command, self.path, self.body, kept)
            answer: HTTPResponse = upstream.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def _answer(self, status, headers, data, announced=None):
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        skipped = _NOT_FORWARDED if is_head else _NOT_FORWARDED | {"content-length"}
        for name, value in headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        if not is_head:
            self.send_header("Content-Length", str(len(data) if announced is None else announced))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _refuse(self, fault):
        said = f"<Code>{fault.code}</Code><Message>{fault.message}</Message>"
        data = b"" if self.command == "HEAD" else f"<Error>{said}</Error>".encode()
        self._answer(fault.status, {"Content-Type": "application/xml", **fault.headers}, data)

    def _break(self):
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        # Closed for real only when no file object is left.
        self.connection.shutdown(socket.SHUT_RD)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def shutdown_request(self, request):
        self.close_request(request)  # No orderly shutdown first: it would hide a reset.

    def handle_error(self, *_args):
        pass  # A client that goes away is what many of these tests are about.


class FaultProxy:
    """Use as a context manager; ``endpoint`` is what the client talks to."""

    operation_of = staticmethod(operation_of)

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname, parts.port)
        self.requests: list[str] = []
        self.held = threading.Event()
        self.closing = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def script(self, *faults: Fault) -> None:
        """Replace what goes wrong, and forget what was asked so far."""
        with self._lock:
            self._faults = [replace(fault, matched=0) for fault in faults]
            self.requests.clear()

    def fault_for(self, operation: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append(operation)
            due = [fault for fault in self._faults if fault.is_due(operation, path)]
        return due[0] if due else None
