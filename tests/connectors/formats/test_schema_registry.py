"""A schema registry over HTTP: what it answers, refuses, and does not answer."""

import json
import pickle  # noqa: TID251 - Spark sends formats to workers by it
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.avro_format import AvroFormat
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError
from laminar_core.connectors.formats.schema_registry import KnownSchemas, SchemaRegistry
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from tests.connectors.formats.adversarial import messages
from tests.connectors.formats.avro_messages import message, record

ADDRESS = {"type": "record", "name": "address", "fields": [{"name": "city", "type": "string"}]}
PERSON = record(name="string", home="address")
ANSWERS: dict[str, tuple[int, Any]] = {
    "/schemas/ids/1": (200, {"schema": json.dumps(record(id="int"))}),
    "/schemas/ids/2": (
        200,
        {
            "schema": json.dumps(PERSON),
            "references": [{"name": "address", "subject": "a/b", "version": 3}],
        },
    ),
    "/subjects/a%2Fb/versions/3": (200, {"schema": json.dumps(ADDRESS)}),
    "/schemas/ids/3": (200, {"schema": "{}", "schemaType": "PROTOBUF"}),
    "/schemas/ids/4": (200, {"schema": "{}", "references": [{"subject": "circle", "version": 1}]}),
    "/subjects/circle/versions/1": (
        200,
        {"schema": "{}", "references": [{"subject": "circle", "version": 1}]},
    ),
    "/schemas/ids/5": (401, {"message": "who are you?"}),
    "/schemas/ids/6": (501, {}),
    "/schemas/ids/8": (200, "no JSON"),
    "/schemas/ids/10": (200, {"health": "green"}),
    "/schemas/ids/11": (200, ["a list"]),
    "/subjects/orders-value/versions": (200, {"id": 12}),
    "/subjects/taken-value/versions": (409, {"message": "incompatible with\n an earlier schema"}),
}
COLUMNS = pa.schema([("id", pa.int64())])


class _Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str | None]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        _Handler.seen.append((self.path, self.headers["Authorization"]))
        status, answer = ANSWERS.get(self.path, (404, {"error_code": 40403}))
        body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def serving() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as address:
        yield address


def test_a_schema_is_read_once(url: str) -> None:
    _Handler.seen.clear()
    decoder = AvroFormat(SchemaRegistry(url + "/")).decoder(COLUMNS)
    value = message(record(id="int"), {"id": 5}, 1)
    for _ in range(3):
        assert decoder.decode(messages([value, value])).rows.to_pylist() == [{"id": 5}, {"id": 5}]
    assert _Handler.seen == [("/schemas/ids/1", None)]


def test_schemas_of_other_subjects_are_read_as_well(url: str) -> None:
    text = SchemaRegistry(url).read(2)
    assert [json.loads(each) for each in (*text.named, text.text)] == [ADDRESS, PERSON]
    inline = record(name="string", home=ADDRESS)
    value = message(inline, {"name": "a", "home": {"city": "b"}}, 2)
    wanted = pa.schema([("home", pa.struct([pa.field("city", pa.string())]))])
    found = AvroFormat(SchemaRegistry(url)).decoder(wanted).decode(messages([value]))
    assert found.rows.to_pylist() == [{"home": {"city": "b"}}]


@pytest.mark.parametrize(
    ("schema_id", "defect", "why"),
    [
        (9, Defect.UNKNOWN_SCHEMA, "has no schema 9"),
        (3, Defect.WRONG_SCHEMA, "schema 3 is PROTOBUF, not Avro"),
        (4, Defect.UNKNOWN_SCHEMA, "refers to too many others"),
    ],
)
def test_what_is_no_schema_refuses_the_message(
    url: str, schema_id: int, defect: Defect, why: str
) -> None:
    with pytest.raises(MessageRefusedError, match=why) as caught:
        SchemaRegistry(url).read(schema_id)
    assert caught.value.defect is defect


def test_refused_credentials_are_one_line_that_says_what_to_correct(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="correct user= and the variable"):
        SchemaRegistry(url).read(5)
    registry = SchemaRegistry(url, user="me", password_variable="REGISTRY_PASSWORD")
    monkeypatch.delenv("REGISTRY_PASSWORD", raising=False)
    with pytest.raises(ConfigurationError, match="REGISTRY_PASSWORD is not set"):
        registry.read(1)
    monkeypatch.setenv("REGISTRY_PASSWORD", "hush")
    _Handler.seen.clear()
    registry.read(1)
    assert _Handler.seen == [("/schemas/ids/1", f"Basic {b64encode(b'me:hush').decode()}")]
    assert "hush" not in repr(registry)
    assert pickle.loads(pickle.dumps(registry)) == registry


def test_a_registry_that_does_not_answer_is_tried_again_by_the_job(url: str) -> None:
    for schema_id in (6, 8, 10, 11):
        with pytest.raises(StorageUnavailable, match="schema registry http"):
            SchemaRegistry(url).read(schema_id)
    with serving() as gone:
        pass
    line = f"schema registry {gone}, schemas/ids/1: no answer: Connection refused"
    with pytest.raises(StorageUnavailable, match=f"^{re.escape(line)}$"):
        SchemaRegistry(gone).read(1)


@pytest.mark.parametrize(
    "answer",
    [
        {"number": 7},
        {"schema": {"type": "int"}},
        {"schema": "{}", "references": 5},
        {"schema": "{}", "references": ["a"]},
        {"schema": "{}", "references": [{"subject": "a"}]},
        {"schema": "{}", "references": [{"subject": 1, "version": 1}]},
        '{"schema":' + 100_000 * "[" + 100_000 * "]" + "}",
        '{"schema":' + 5_000 * "9" + "}",
        {"id": "x"},
        {"id": None},
        {"id": True},
        {"id": -1},
        {"id": 2**32},
    ],
    ids=lambda answer: str(answer)[:50],
)
def test_what_is_no_answer_of_a_registry_is_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    for path in ("/schemas/ids/20", "/subjects/odd-value/versions"):
        monkeypatch.setitem(ANSWERS, path, (200, answer))
    registry = SchemaRegistry(url)
    with pytest.raises(StorageUnavailable, match="not as a schema registry does"):
        registry.read(20)
    with pytest.raises(StorageUnavailable, match="not as a schema registry does"):
        registry.register("odd-value", '"int"')


@pytest.mark.parametrize("answer", [["a list"], "no JSON", {}])
def test_a_refusal_without_a_reason_names_the_status(
    url: str, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setitem(ANSWERS, "/subjects/odd-value/versions", (409, answer))
    with pytest.raises(ConfigurationError, match="odd-value/versions: 409"):
        SchemaRegistry(url).register("odd-value", '"int"')


def test_schemas_that_are_written_are_registered(url: str) -> None:
    assert SchemaRegistry(url).register("orders-value", '"int"') == 12
    with pytest.raises(ConfigurationError, match="incompatible with an earlier schema") as caught:
        SchemaRegistry(url).register("taken-value", '"int"')
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


def test_addresses_have_no_credentials_and_users_have_passwords() -> None:
    for given in ("registry:8081", "http://me:hush@registry"):
        with pytest.raises(ConfigurationError, match="without a user or a password") as caught:
            SchemaRegistry(given)
        assert "hush" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="or neither"):
        SchemaRegistry("http://registry", user="me")


def test_known_schemas_are_found_by_number_and_by_content() -> None:
    known = KnownSchemas({4: '{"type": "int"}'})
    assert known.register("t", '{"type":"int"}') == 4
    with pytest.raises(MessageRefusedError, match="no schema has the number 5"):
        known.read(5)
    with pytest.raises(ConfigurationError, match="-1 is not the number of a schema"):
        KnownSchemas({-1: '"int"'})
    with pytest.raises(ConfigurationError, match="'7' is not the number of a schema"):
        KnownSchemas(json.loads('{"7": "int"}'))
