import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import ClassVar

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.azure import AzureObjectStore
from laminar_core.objectstore.azure_options import MIB
from laminar_core.objectstore.opening import open_object_store, probe
from laminar_core.store.records import create_or_confirm
from tests.objectstore.azure_servers import (
    AzureProxy,
    open_through,
    shared_access_signature,
)
from tests.objectstore.fault_proxy import Effect, Fault
from tests.objectstore.lost_answers import LostAnswers
from tests.objectstore.object_store_contract import ObjectStoreContract

EXISTS = {"status": 409, "code": "BlobAlreadyExists"}
FOR_EVER = 1_000
LARGE = bytes(16 * MIB + 1)


@pytest.fixture
def behind_proxy(azure_server, azure_proxy):
    return open_through(azure_server, azure_proxy)


class TestAzureObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self, azure_server):
        return AzureObjectStore(azure_server.uri())

    def test_its_uri_opens_the_same_place_in_another_process(self, objects):
        objects.put("job/a", b"1")
        assert open_object_store(objects.uri).get("job/a") == b"1"

    def test_it_keeps_to_its_prefix(self, objects):
        place, _, query = objects.uri.partition("?")
        AzureObjectStore(f"{place}0?{query}").put("a", b"1")
        objects.put("b", b"2")
        assert (objects.list(""), objects.children("")) == (["b"], ["b"])

    def test_requests_are_counted_as_they_are_sent(self, behind_proxy, azure_proxy):
        objects = behind_proxy
        objects.put("a", b"12345")
        objects.put_if_absent("a", b"123")
        objects.get("a")
        objects.get("b")
        objects.size("a")
        objects.list("")
        objects.delete("a")
        counts = objects.counts
        assert (counts.puts, counts.gets, counts.heads, counts.lists) == (2, 2, 1, 1)
        assert (counts.deletes, counts.retries) == (1, 0)
        assert (counts.bytes_up, counts.bytes_down) == (8, 5)
        assert len(azure_proxy.requests) == 7

    def test_listings_have_as_many_pages_as_they_need(self, objects, monkeypatch):
        """Azure's pages have 5,000 names; nobody writes that many here."""
        monkeypatch.setattr("laminar_core.objectstore.azure._PAGE", 2)
        for number in range(5):
            objects.put(f"job/{number}/a", b"")
        before = objects.counts
        assert len(objects.list("job/")) == len(objects.children("job/")) == 5
        assert (objects.counts - before).lists == 6

    def test_a_large_object_is_one_request_and_what_is_there_is_not_sent(
        self, behind_proxy, azure_proxy
    ):
        assert behind_proxy.put_if_absent("a", LARGE)
        assert not behind_proxy.put_if_absent("a", LARGE)
        assert behind_proxy.get("a") == LARGE
        assert azure_proxy.requests == ["HeadObject", "PutObject", "HeadObject", "GetObject"]

    def test_a_slice_of_other_bytes_is_written_as_it_is(self, objects):
        objects.put("a", memoryview(b"0123456789")[2:4])
        assert objects.get("a") == b"23"

    def test_what_is_too_large_for_one_request_is_refused_before_it_is_sent(
        self, objects, monkeypatch
    ):
        monkeypatch.setattr("laminar_core.objectstore.azure.ONE_PUT_BYTES_MAX", 4)
        with pytest.raises(ConfigurationError, match="use more subtasks"):
            objects.put("a", b"12345")
        assert objects.counts.puts == 0


class TestLostAnswers(LostAnswers):
    exists = EXISTS
    conflict: ClassVar = {"status": 409, "code": "ContainerBeingDeleted"}
    """obstore reports every 409 as an object that exists."""

    @pytest.fixture
    def proxy(self, azure_proxy):
        return azure_proxy

    def test_the_records_above_agree_when_even_the_time_for_retries_is_over(
        self, azure_server, azure_proxy
    ):
        objects = open_through(azure_server, azure_proxy, "retry_budget_ms=0")
        azure_proxy.script(Fault("PutObject", Effect.LOSE_ANSWER))
        assert create_or_confirm(objects, "key", b"mine")


class TestFaults:
    """Every verb with each kind of fault, once: the caller notices nothing."""

    @pytest.mark.parametrize("effect", [Effect.RESET, Effect.LOSE_ANSWER, Effect.REFUSE])
    def test_trouble_that_passes(self, behind_proxy, azure_proxy, effect):
        objects = behind_proxy

        def once(operation: str) -> None:
            azure_proxy.script(Fault(operation, effect, 503, "ServerBusy"))

        once("PutObject")
        objects.put("job/a", b"1")
        once("GetObject")
        assert objects.get("job/a") == b"1"
        once("HeadObject")
        assert objects.size("job/a") == 1
        once("ListObjectsV2")
        assert objects.list("") == ["job/a"]
        once("ListObjectsV2")
        assert objects.children("") == ["job/"]
        once("DeleteObject")
        objects.delete("job/a")
        assert objects.counts.retries == 6
        assert objects.list("") == []

    def test_half_an_answer_is_no_object(self, behind_proxy, azure_proxy):
        behind_proxy.put("a", b"0123456789" * 1_000)
        azure_proxy.script(Fault("GetObject", Effect.HALF_ANSWER, last=2))
        assert len(behind_proxy.get("a")) == 10_000
        azure_proxy.script(Fault("GetObject", Effect.HALF_ANSWER))
        assert behind_proxy.sha256("a", 10_000)
        assert azure_proxy.requests == ["GetObject"] * 2

    @pytest.mark.parametrize(
        ("operation", "call", "said"),
        [
            ("GetObject", lambda o: o.get("job/a"), "cannot read az://"),
            ("PutObject", lambda o: o.put_if_absent("job/a", b""), "cannot write az://"),
            ("ListObjectsV2", lambda o: o.list("job/"), "cannot list az://"),
            ("DeleteObject", lambda o: o.delete("job/a"), "cannot delete az://"),
        ],
        ids=["get", "put_if_absent", "list", "delete"],
    )
    def test_trouble_that_stays(self, behind_proxy, azure_proxy, operation, call, said):
        azure_proxy.script(Fault(operation, Effect.REFUSE, 500, last=FOR_EVER))
        with pytest.raises(StorageUnavailable, match="start again") as caught:
            call(behind_proxy)
        assert str(caught.value).startswith(said)
        assert caught.value.code is ErrorCode.STORE_IO

    def test_no_error_shows_a_signature_not_even_its_cause(
        self, azure_server, azure_proxy, monkeypatch
    ):
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
        monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", shared_access_signature())
        objects = open_through(azure_server, azure_proxy)
        objects.put("a", b"1")
        azure_proxy.script(Fault("*", Effect.RESET, last=FOR_EVER))
        with pytest.raises(StorageUnavailable) as caught:
            objects.get("a")
        error, seen = caught.value, ""
        while error is not None:
            seen += f"{error!r} {error.args}"
            error = error.__cause__ or error.__context__
        assert "error sending request" in seen
        assert "sig" not in seen.replace("signature", "")


class TestProbe:
    def test_a_server_that_ignores_conditions_is_refused(
        self, azure_server, azure_proxy, monkeypatch
    ):
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")  # It would sign the condition.
        monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", shared_access_signature())
        azure_proxy.script(Fault("PutObject", Effect.IGNORE_CONDITIONS, last=FOR_EVER))
        with pytest.raises(ConfigurationError, match="4 of 4 writers created") as caught:
            probe(open_through(azure_server, azure_proxy))
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS

    @pytest.mark.parametrize("operation", ["PutObject", "GetObject", "ListObjectsV2"])
    def test_a_permission_that_is_missing_is_found_before_the_job_starts(
        self, behind_proxy, azure_proxy, operation
    ):
        refused = Fault(
            operation, Effect.REFUSE, 403, "AuthorizationPermissionMismatch", last=FOR_EVER
        )
        azure_proxy.script(refused)
        with pytest.raises(ConfigurationError, match="Blob Data Contributor") as caught:
            probe(behind_proxy)
        assert caught.value.code is ErrorCode.STORE_ACCESS_DENIED

    def test_wrong_credentials_are_a_mistake_to_correct(self, azure_server, monkeypatch):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
        with pytest.raises(ConfigurationError, match="set AZURE_STORAGE_ACCOUNT_KEY") as caught:
            probe(AzureObjectStore(azure_server.uri()))
        assert caught.value.code is ErrorCode.STORE_CREDENTIALS

    @pytest.mark.parametrize(
        "verb", [lambda o: o.put("a", b""), lambda o: o.list("")], ids=["put", "list"]
    )
    def test_a_container_that_does_not_exist_is_no_empty_store(self, azure_server, verb):
        objects = AzureObjectStore(f"az://no-such-container?endpoint={azure_server.endpoint}")
        with pytest.raises(ConfigurationError, match="create the container") as caught:
            verb(objects)
        assert caught.value.code is ErrorCode.NO_SUCH_BUCKET

    def test_without_an_account_one_line_says_so(self, monkeypatch):
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
        with pytest.raises(ConfigurationError, match="add account_name=") as caught:
            AzureObjectStore("az://container").list("")
        assert caught.value.code is ErrorCode.INVALID_OPTION


class UnreliableProxy(AzureProxy):
    """Strikes a third of all requests, by chance."""

    random = Random(7)
    struck = 0
    faults = (
        Fault("*", Effect.LOSE_ANSWER),
        Fault("*", Effect.REFUSE_AFTERWARDS, 500, "InternalError"),
        Fault("*", Effect.RESET),
        Fault("*", Effect.REFUSE, 503, "ServerBusy"),
    )

    def fault_for(self, operation: str, path: str) -> Fault | None:
        del operation, path
        with self._lock:
            if self.random.random() > 0.35:
                return None
            self.struck += 1
            return self.random.choice(self.faults)


def test_one_writer_wins_and_knows_it_whatever_is_lost(azure_server):
    """Which requests are struck depends on threads; what is asserted holds for every order."""
    writers, rounds = 6, 8
    with UnreliableProxy(azure_server) as proxy:
        uri = azure_server.uri(endpoint=proxy.endpoint)
        stores = [
            AzureObjectStore(uri, clock=ManualClock(), random=Random(n)) for n in range(writers)
        ]
        start = threading.Barrier(writers)

        def race(writer: int) -> list[bool]:
            won = []
            for number in range(rounds):
                start.wait()
                won.append(stores[writer].put_if_absent(f"{number}", b"%d" % writer))
            return won

        with ThreadPoolExecutor(writers) as pool:
            results = list(pool.map(race, range(writers)))
        assert proxy.struck > writers * rounds / 4
    seen_from_outside = AzureObjectStore(uri.replace(proxy.endpoint, azure_server.endpoint))
    for number in range(rounds):
        winners = [writer for writer in range(writers) if results[writer][number]]
        assert len(winners) == 1
        assert seen_from_outside.get(f"{number}") == b"%d" % winners[0]
