import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.opening import open_object_store, probe
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.store.records import create_or_confirm
from laminar_core.testing.faulty_store import Effect as StoreEffect
from laminar_core.testing.faulty_store import Fault as StoreFault
from laminar_core.testing.faulty_store import FaultyStore
from tests.objectstore.fault_proxy import Effect, Fault
from tests.objectstore.lost_answers import LostAnswers
from tests.objectstore.s3_contract import S3Contract
from tests.objectstore.s3_servers import BUCKET, client
from tests.objectstore.s3_stores import LARGE, open_through

EXISTS = {"status": 412, "code": "PreconditionFailed"}
CONFLICT = {"status": 409, "code": "ConditionalRequestConflict"}
FOR_EVER = 1_000


@pytest.fixture
def behind_proxy(s3_server, proxy):
    return open_through(s3_server, proxy)


def direct(objects: S3ObjectStore, server, proxy) -> S3ObjectStore:
    """Open the place of ``behind_proxy`` past the proxy."""
    return S3ObjectStore(objects.uri.replace(proxy.endpoint, server.endpoint))


class TestS3ObjectStore(S3Contract):
    @pytest.fixture
    def server(self, s3_server):
        return s3_server

    def test_its_uri_opens_the_same_place_in_another_process(self, objects):
        objects.put("job/a", b"1")
        assert open_object_store(objects.uri).get("job/a") == b"1"

    def test_it_keeps_to_its_prefix(self, objects, s3_server):
        place, _, query = objects.uri.partition("?")
        neighbour = S3ObjectStore(f"{place}0?{query}")
        neighbour.put("a", b"1")
        objects.put("b", b"2")
        assert objects.list("") == ["b"]
        assert objects.children("") == ["b"]
        prefix = place.removeprefix(f"s3://{BUCKET}/")
        found = client(s3_server.endpoint).list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        assert [one["Key"] for one in found["Contents"]] == [f"{prefix}/b", f"{prefix}0/a"]

    def test_a_bucket_needs_no_prefix(self, s3_server):
        bucket = "without-prefix"
        client(s3_server.endpoint).create_bucket(Bucket=bucket)
        objects = S3ObjectStore(f"s3://{bucket}?endpoint_url={s3_server.endpoint}")
        objects.put("job/a", b"1")
        assert (objects.list(""), objects.children("")) == (["job/a"], ["job/"])
        assert client(s3_server.endpoint).get_object(Bucket=bucket, Key="job/a")

    def test_requests_are_counted_as_they_are_sent(self, objects):
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


class TestLostAnswers(LostAnswers):
    exists = EXISTS
    conflict = CONFLICT

    def test_a_conflict_that_was_told_after_the_fact_is_no_loss(self, behind_proxy, proxy):
        proxy.script(Fault("PutObject", Effect.REFUSE_AFTERWARDS, 409, "InternalError"))
        assert behind_proxy.put_if_absent("key", b"mine")

    def test_a_write_that_arrives_late_is_recognised(self, behind_proxy, proxy, s3_server):
        """Refused while nothing is there, and only then does the first attempt take effect."""
        late = client(s3_server.endpoint)
        objects = S3ObjectStore(behind_proxy.uri, clock=ManualClock(), new_mark=lambda: "mark-1")
        key = objects.uri.removeprefix(f"s3://{BUCKET}/").partition("?")[0] + "/key"

        def arrive() -> None:
            metadata = {"laminar-write": "mark-1"}
            late.put_object(Bucket=BUCKET, Key=key, Body=b"mine", Metadata=metadata)

        proxy.script(
            Fault("PutObject", Effect.RESET),
            Fault("PutObject", Effect.REFUSE, **EXISTS, first=2, last=2),
            Fault("PutObject", Effect.CHANGE_BEFORE, first=3, last=3, change=arrive),
        )
        assert objects.put_if_absent("key", b"mine")
        assert proxy.requests == ["PutObject", "PutObject", "HeadObject", "PutObject", "HeadObject"]

    @pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.REFUSE_AFTERWARDS])
    def test_a_completion_whose_answer_is_lost_wins(self, behind_proxy, proxy, effect):
        proxy.script(Fault("CompleteMultipartUpload", effect))
        assert behind_proxy.put_if_absent("key", LARGE)
        assert behind_proxy.get("key") == LARGE
        assert proxy.requests.count("CreateMultipartUpload") == 1

    def test_a_completion_that_loses_is_told_so(self, behind_proxy, proxy, s3_server):
        theirs = direct(behind_proxy, s3_server, proxy)
        first = Fault(
            "CompleteMultipartUpload", Effect.CHANGE_BEFORE, change=lambda: theirs.put("key", b"t")
        )
        proxy.script(first)
        assert not behind_proxy.put_if_absent("key", LARGE)
        assert behind_proxy.get("key") == b"t"
        assert "AbortMultipartUpload" in proxy.requests

    def test_what_is_there_already_is_not_uploaded_in_parts_first(self, behind_proxy, proxy):
        behind_proxy.put("key", b"theirs")
        proxy.script()
        assert not behind_proxy.put_if_absent("key", LARGE)
        assert proxy.requests == ["HeadObject"]

    def test_the_records_above_agree_when_even_the_time_for_retries_is_over(self, s3_server, proxy):
        objects = open_through(s3_server, proxy, "retry_budget_ms=0")
        proxy.script(Fault("PutObject", Effect.LOSE_ANSWER))
        assert create_or_confirm(objects, "key", b"mine")
        assert create_or_confirm(
            FaultyStore(objects, StoreFault("put_if_absent", StoreEffect.LOSE_ANSWER)), "k", b"m"
        )


class TestFaults:
    """Every verb with each kind of fault, once: the caller notices nothing."""

    @pytest.mark.parametrize("effect", [Effect.RESET, Effect.LOSE_ANSWER, Effect.REFUSE])
    def test_trouble_that_passes(self, behind_proxy, proxy, effect):
        objects = behind_proxy

        def once(operation: str) -> None:
            proxy.script(Fault(operation, effect, 503, "SlowDown"))

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

    @pytest.mark.parametrize(
        ("operation", "call", "said"),
        [
            ("GetObject", lambda o: o.get("job/a"), "cannot read s3://"),
            ("HeadObject", lambda o: o.size("job/a"), "cannot read s3://"),
            ("PutObject", lambda o: o.put("job/a", b""), "cannot write s3://"),
            ("PutObject", lambda o: o.put_if_absent("job/a", b""), "cannot write s3://"),
            ("ListObjectsV2", lambda o: o.list("job/"), "cannot list s3://"),
            ("DeleteObject", lambda o: o.delete("job/a"), "cannot delete s3://"),
        ],
        ids=["get", "size", "put", "put_if_absent", "list", "delete"],
    )
    def test_trouble_that_stays(self, behind_proxy, proxy, operation, call, said):
        proxy.script(Fault(operation, Effect.REFUSE, 500, last=FOR_EVER))
        with pytest.raises(StorageUnavailable, match="start again") as caught:
            call(behind_proxy)
        assert str(caught.value).startswith(said)
        assert caught.value.code is ErrorCode.STORE_IO

    def test_a_full_store_is_not_asked_again(self, behind_proxy, proxy):
        proxy.script(Fault("PutObject", Effect.REFUSE, 507, "XMinioStorageFull", last=FOR_EVER))
        with pytest.raises(StorageUnavailable, match="free some space") as caught:
            behind_proxy.put("job/a", b"")
        assert caught.value.code is ErrorCode.STORE_FULL
        assert proxy.requests == ["PutObject"]

    def test_an_object_too_large_for_one_request_is_refused_before_it_is_sent(self, monkeypatch):
        monkeypatch.setattr("laminar_core.objectstore.s3_options.ONE_PUT_BYTES_MAX", 6 * 2**20)
        objects = S3ObjectStore("s3://bucket?multipart_threshold=6MiB")
        with pytest.raises(ConfigurationError, match="smaller multipart_threshold"):
            objects.put("key", LARGE)


LOGIN = b"<html><body>Log in to this network</body></html>"
UPLOAD = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
ENDLESS = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
ENDLESS_UPLOADS = ENDLESS.replace(b"Bucket", b"MultipartUploads")
VERBS = {
    "list": ("ListObjectsV2 without IsTruncated", lambda s: s.list("")),
    "children": ("ListObjectsV2 without IsTruncated", lambda s: s.children("")),
    "pending": ("ListMultipartUploads without", lambda s: s.staged_uploads().pending("")),
    "is_pending": ("ListParts without", lambda s: s.staged_uploads().is_pending("a", "u")),
    "put": ("PutObject without ETag", lambda s: s.put("a", b"1")),
    "put_if_absent": ("PutObject without ETag", lambda s: s.put_if_absent("a", b"1")),
    "stage": ("CreateMultipartUpload without", lambda s: s.staged_uploads().stage("a", b"1")),
    "complete": ("CompleteMultipartUpload", lambda s: s.staged_uploads().complete("a", "u", ["e"])),
    "get": ("GetObject without ETag", lambda s: s.get("a")),
    "sha256": ("GetObject without ETag", lambda s: s.sha256("a", 100)),
    "get_range": ("GetObject without ETag", lambda s: s.get_range("a", 0, 1, 1)),
    "size": ("HeadObject without ETag", lambda s: s.size("a")),
}


class TestForeignAnswers:
    """A proxy or a login page answers 200, and knows nothing of what is in the bucket."""

    @pytest.mark.parametrize("body", [b"", LOGIN], ids=["empty", "login"])
    @pytest.mark.parametrize("verb", VERBS)
    def test_they_count_as_no_answer(self, behind_proxy, proxy, verb, body):
        said, call = VERBS[verb]
        proxy.script(Fault("*", Effect.SAY, 200, body=body, last=FOR_EVER))
        with pytest.raises(StorageUnavailable, match=f"not S3's: {said}.*check endpoint_url"):
            call(behind_proxy)
        assert len(proxy.requests) > 1

    def test_one_that_passes_is_not_noticed(self, behind_proxy, proxy):
        proxy.script(
            Fault("PutObject", Effect.SAY, 200, body=LOGIN),
            Fault("ListObjectsV2", Effect.SAY, 200, body=LOGIN),
        )
        assert behind_proxy.put_if_absent("a", b"1")
        assert behind_proxy.list("") == ["a"]

    @pytest.mark.parametrize(
        ("said", "body", "call"),
        [
            ("NextContinuationToken", ENDLESS, lambda s: s.list("")),
            ("NextKeyMarker", ENDLESS_UPLOADS, lambda s: s.staged_uploads().pending("")),
        ],
    )
    def test_a_list_that_goes_on_says_where(self, behind_proxy, proxy, said, body, call):
        proxy.script(Fault("*", Effect.SAY, 200, body=body, last=FOR_EVER))
        with pytest.raises(StorageUnavailable, match=f"not S3's: .* without {said}"):
            call(behind_proxy)

    def test_a_part_of_an_upload_has_a_tag(self, behind_proxy, proxy):
        proxy.script(
            Fault("CreateMultipartUpload", Effect.SAY, 200, body=UPLOAD),
            Fault("*", Effect.SAY, 200, last=FOR_EVER),
        )
        with pytest.raises(StorageUnavailable, match="not S3's: UploadPart without ETag"):
            behind_proxy.staged_uploads().stage("a", b"1")


class TestProbe:
    def test_a_server_that_ignores_conditions_is_refused(self, behind_proxy, proxy):
        proxy.script(Fault("PutObject", Effect.IGNORE_CONDITIONS, last=FOR_EVER))
        with pytest.raises(ConfigurationError, match="4 of 4 writers created") as caught:
            probe(behind_proxy)
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS

    def test_so_is_one_that_ignores_them_only_when_an_upload_is_completed(
        self, behind_proxy, proxy
    ):
        ignored = Fault("CompleteMultipartUpload", Effect.IGNORE_CONDITIONS, last=FOR_EVER)
        proxy.script(ignored)
        with pytest.raises(ConfigurationError, match="multipart_threshold=5GiB") as caught:
            probe(behind_proxy)
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS

    def test_which_does_not_matter_if_nothing_is_uploaded_in_parts(self, s3_server, proxy):
        uri = s3_server.uri("multipart_threshold=5GiB", endpoint=proxy.endpoint)
        proxy.script(Fault("CompleteMultipartUpload", Effect.IGNORE_CONDITIONS, last=FOR_EVER))
        probe(S3ObjectStore(uri))
        assert "CreateMultipartUpload" not in proxy.requests

    def test_one_that_does_not_know_the_header_is_refused(self, behind_proxy, proxy):
        proxy.script(Fault("PutObject", Effect.REFUSE, 501, "NotImplemented", last=FOR_EVER))
        with pytest.raises(ConfigurationError, match="conditional writes") as caught:
            probe(behind_proxy)
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS

    @pytest.mark.parametrize(
        "operation", ["PutObject", "GetObject", "ListObjectsV2", "DeleteObject", "UploadPart"]
    )
    def test_a_permission_that_is_missing_is_found_before_the_job_starts(
        self, behind_proxy, proxy, operation
    ):
        proxy.script(Fault(operation, Effect.REFUSE, 403, "AccessDenied", last=FOR_EVER))
        with pytest.raises(ConfigurationError, match="allow s3:GetObject") as caught:
            probe(behind_proxy)
        assert caught.value.code is ErrorCode.STORE_ACCESS_DENIED
