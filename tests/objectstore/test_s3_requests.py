import socket
from random import Random

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.s3_options import S3Options
from laminar_core.objectstore.s3_requests import S3Requests
from laminar_core.objectstore.sending import Kind
from tests.objectstore.fault_proxy import Effect, Fault
from tests.objectstore.s3_servers import BUCKET

FOR_EVER = 1_000


def requests_to(uri: str) -> S3Requests:
    """Time stands still but for the waits between attempts."""
    return S3Requests(S3Options.parse(uri), clock=ManualClock(), random=Random(1))


@pytest.fixture
def requests(s3_server, proxy):
    return requests_to(s3_server.uri(endpoint=proxy.endpoint))


def put(requests: S3Requests, **parameters):
    target = {**requests.common, "Key": "key", "Body": b"12345"}
    return requests.send("write", "key", lambda client: client.put_object(**target, **parameters))


class TestAttempts:
    def test_one_is_enough_if_it_works(self, requests, proxy):
        assert put(requests).attempts == 1
        assert proxy.requests == ["PutObject"]

    @pytest.mark.parametrize(
        "fault",
        [
            Fault("PutObject", Effect.RESET, last=3),
            Fault("PutObject", Effect.LOSE_ANSWER, last=3),
            Fault("PutObject", Effect.REFUSE, 500, "InternalError", last=3),
            Fault("PutObject", Effect.REFUSE, 503, "SlowDown", last=3),
            Fault("PutObject", Effect.REFUSE, 503, "", last=3),
            Fault("PutObject", Effect.REFUSE, 409, "ConditionalRequestConflict", last=3),
        ],
        ids=lambda fault: f"{fault.effect.name}-{fault.status}-{fault.code}",
    )
    def test_what_passes_is_sent_again_and_botocore_repeats_nothing(self, requests, proxy, fault):
        proxy.script(fault)
        assert put(requests).attempts == 4
        assert proxy.requests == ["PutObject"] * 4
        assert (requests.counter.counts.puts, requests.counter.counts.retries) == (4, 3)
        assert requests.counter.counts.bytes_up == 20

    def test_the_user_cannot_bring_botocores_retries_back(self, s3_server, proxy, monkeypatch):
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
        monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
        proxy.script(Fault("PutObject", Effect.RESET, last=FOR_EVER))
        uri = s3_server.uri("retry_budget_ms=0", endpoint=proxy.endpoint)
        with pytest.raises(StorageUnavailable):
            put(requests_to(uri))
        assert proxy.requests == ["PutObject"]

    def test_a_silent_server_is_not_waited_for_longer_than_said(self, s3_server, proxy):
        proxy.script(Fault("PutObject", Effect.HOLD))
        uri = s3_server.uri("read_timeout_ms=100", endpoint=proxy.endpoint)
        assert put(requests_to(uri)).attempts == 2

    def test_an_answer_that_breaks_off_is_read_again(self, requests, proxy):
        put(requests)
        proxy.script(Fault("GetObject", Effect.HALF_ANSWER, last=2))
        reply = requests.send(
            "read",
            "key",
            lambda client: client.get_object(**requests.common, Key="key")["Body"].read(),
        )
        assert (reply.value, reply.attempts) == (b"12345", 3)

    def test_after_the_budget_there_is_one_clear_line(self, s3_server, proxy):
        clock = ManualClock()
        uri = s3_server.uri(endpoint=proxy.endpoint)
        requests = S3Requests(S3Options.parse(uri), clock=clock, random=Random(1))
        proxy.script(Fault("PutObject", Effect.REFUSE, 503, "SlowDown", last=FOR_EVER))
        started_ms = clock.monotonic_ms()
        with pytest.raises(StorageUnavailable) as caught:
            put(requests)
        assert caught.value.code is ErrorCode.STORE_THROTTLED
        times = len(proxy.requests)
        assert str(caught.value) == (
            f"cannot write s3://{BUCKET}/key at {proxy.endpoint}: 503 SlowDown: scripted "
            f"(tried {times} times); spread the load, or use a longer checkpoint interval"
        )
        assert 8 < times < 40
        assert 15_000 < clock.monotonic_ms() - started_ms < 30_000

    def test_what_the_caller_wants_to_know_is_an_answer(self, requests, proxy):
        proxy.script(Fault("PutObject", Effect.REFUSE, 409, "ConditionalRequestConflict"))
        target = {**requests.common, "Key": "key", "Body": b""}
        reply = requests.send("write", "key", lambda c: c.put_object(**target), {Kind.CONFLICT})
        assert (reply.kind, reply.value, reply.attempts) == (Kind.CONFLICT, None, 1)

    def test_what_is_not_needed_is_tried_once(self, requests, proxy):
        proxy.script(Fault("DeleteObject", Effect.RESET, last=FOR_EVER))
        requests.try_once(lambda client: client.delete_object(**requests.common, Key="key"))
        assert proxy.requests == ["DeleteObject"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "code", "expected"),
        [
            (403, "AccessDenied", ErrorCode.STORE_ACCESS_DENIED),
            (403, "SignatureDoesNotMatch", ErrorCode.STORE_CREDENTIALS),
            (400, "InvalidArgument", ErrorCode.INVALID_OPTION),
        ],
    )
    def test_a_store_that_never_worked_is_a_mistake_to_correct(
        self, requests, proxy, status, code, expected
    ):
        proxy.script(Fault("PutObject", Effect.REFUSE, status, code, last=FOR_EVER))
        with pytest.raises(ConfigurationError) as caught:
            put(requests)
        assert caught.value.code is expected
        assert len(proxy.requests) == 1

    def test_one_that_worked_may_work_again(self, requests, proxy):
        """Keys are renewed and policies take effect with a delay; a job can outlive that."""
        put(requests)
        proxy.script(Fault("PutObject", Effect.REFUSE, 403, "AccessDenied"))
        with pytest.raises(StorageUnavailable) as caught:
            put(requests)
        assert caught.value.code is ErrorCode.STORE_ACCESS_DENIED
        assert put(requests).kind is None

    def test_no_bucket(self, s3_server):
        uri = f"s3://no-such-bucket-here?endpoint_url={s3_server.endpoint}"
        with pytest.raises(ConfigurationError, match="create the bucket, or correct") as caught:
            put(requests_to(uri))
        assert caught.value.code is ErrorCode.NO_SUCH_BUCKET

    def test_no_credentials(self, s3_server, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(ConfigurationError, match="set AWS_ACCESS_KEY_ID") as caught:
            put(requests_to(s3_server.uri()))
        assert caught.value.code is ErrorCode.STORE_CREDENTIALS

    def test_no_profile(self, s3_server):
        with pytest.raises(ConfigurationError, match="nobodys"):
            put(requests_to(s3_server.uri("profile=nobodys")))

    def test_a_profile_is_read_from_the_users_files(self, s3_server, monkeypatch, tmp_path):
        (tmp_path / "credentials").write_text(
            "[team]\naws_access_key_id = a\naws_secret_access_key = b\n"
        )
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        assert put(requests_to(s3_server.uri("profile=team"))).kind is None

    def test_nonsense_in_the_environment(self, s3_server, monkeypatch):
        del s3_server
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "localhost")
        with pytest.raises(ConfigurationError, match="boto3 cannot use its environment"):
            put(requests_to(f"s3://{BUCKET}"))

    def test_a_server_that_is_not_there(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            uri = f"s3://{BUCKET}?endpoint_url=http://127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(StorageUnavailable, match="check the network and the server"):
                put(requests_to(uri))

    def test_a_bucket_of_another_region(self, requests, proxy):
        """botocore looks where the bucket is; without an answer to that, the user has to say."""
        wrong = {"status": 400, "code": "IllegalLocationConstraintException", "last": FOR_EVER}
        proxy.script(Fault("PutObject", Effect.REFUSE, **wrong))
        with pytest.raises(ConfigurationError, match="add region=") as caught:
            put(requests)
        assert caught.value.code is ErrorCode.STORE_WRONG_REGION


class TestWhatIsSent:
    def sent(self, uri: str) -> dict[str, str]:
        """Headers of a request that makes an object."""
        requests = requests_to(uri)
        headers: dict[str, str] = {}

        def attempt(client):
            def look(request, **_):
                headers.update({name.lower(): _text(v) for name, v in request.headers.items()})
                headers["url"] = request.url

            client.meta.events.register("before-send.s3", look)
            target = {**requests.common, **requests.creation, "Key": "key", "Body": b"12345"}
            client.put_object(**target)

        requests.send("write", "key", attempt)
        return headers

    def test_settings_arrive_in_every_request(self, s3_server):
        headers = self.sent(
            s3_server.uri(
                "sse=aws:kms&sse_kms_key_id=k&bucket_key=true&storage_class=STANDARD_IA",
                "acl=bucket-owner-full-control&request_payer=requester",
            )
        )
        expected = {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": "k",
            "x-amz-server-side-encryption-bucket-key-enabled": "true",
            "x-amz-storage-class": "STANDARD_IA",
            "x-amz-acl": "bucket-owner-full-control",
            "x-amz-request-payer": "requester",
        }
        assert expected.items() <= headers.items()

    def test_nothing_is_said_that_was_not_asked_for(self, s3_server):
        headers = self.sent(s3_server.uri())
        assert not [name for name in headers if "encryption" in name or "storage-class" in name]

    def test_uploads_carry_a_checksum_unless_told_otherwise(self, s3_server):
        assert "x-amz-checksum-crc32" in self.sent(s3_server.uri())
        assert "x-amz-checksum-crc32" not in self.sent(s3_server.uri("checksums=when_required"))

    def test_the_bucket_is_in_the_path_on_a_server_of_ones_own(self, s3_server):
        assert f"/{BUCKET}/key" in self.sent(s3_server.uri())["url"]

    def test_it_says_who_asks(self, s3_server):
        assert "laminar/" in self.sent(s3_server.uri())["user-agent"]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
