import threading
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import StorageUnavailable
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.objectstore.s3_options import MIB, PARTS_MAX
from laminar_core.objectstore.s3_transfer import PartPool, plan_parts
from tests.objectstore.fault_proxy import Effect, Fault
from tests.objectstore.s3_servers import BUCKET, client
from tests.objectstore.s3_stores import LARGE, open_through

IN_PARTS = ["CreateMultipartUpload", *["UploadPart"] * 3, "CompleteMultipartUpload"]


@pytest.fixture
def objects(s3_server, proxy):
    return open_through(s3_server, proxy)


def unfinished(server, objects: S3ObjectStore) -> list[str]:
    """Keys of uploads below the store's prefix that were neither completed nor given up."""
    prefix = objects.uri.removeprefix(f"s3://{BUCKET}/").partition("?")[0]
    found = client(server.endpoint).list_multipart_uploads(Bucket=BUCKET, Prefix=prefix)
    return [upload["Key"] for upload in found.get("Uploads", [])]


class TestPlanning:
    @given(st.integers(1, 100 * PARTS_MAX), st.integers(1, 1_000))
    def test_parts_follow_each_other_and_are_neither_too_small_nor_too_many(self, size, part_bytes):
        parts = plan_parts(size, part_bytes)
        assert parts[0][0] == 0
        assert parts[-1][1] == size
        assert all(one[1] == other[0] for one, other in pairwise(parts))
        assert all(stop - start >= part_bytes for start, stop in parts[:-1])
        assert len({stop - start for start, stop in parts[:-1]}) <= 1
        assert 0 < len(parts) <= PARTS_MAX

    def test_nothing_has_no_parts(self):
        assert plan_parts(0, 8) == []


class TestPartPool:
    def test_results_are_in_order_and_no_more_run_than_it_has_threads(self):
        running, most, lock = 0, 0, threading.Lock()
        together = threading.Barrier(3)

        def work(number: int) -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            together.wait()
            with lock:
                running -= 1
            return number

        pool = PartPool(3)
        assert pool.run([lambda n=n: work(n) for n in range(9)]) == list(range(9))
        assert most == 3

    def test_after_an_error_nothing_is_begun_and_nothing_is_under_way(self):
        begun: list[int] = []

        def work(number: int) -> None:
            begun.append(number)
            if number == 2:
                raise ValueError("gone")

        with pytest.raises(ValueError, match="gone"):
            PartPool(1).run([lambda n=n: work(n) for n in range(9)])
        assert begun == [0, 1, 2]


class TestUpload:
    def test_a_large_object_goes_in_parts_and_comes_back_in_parts(self, objects, proxy):
        assert objects.put_if_absent("large", LARGE)
        assert proxy.requests == ["HeadObject", *IN_PARTS]
        assert objects.counts.bytes_up == len(LARGE)
        proxy.script()
        assert objects.get("large") == LARGE
        assert proxy.requests == ["GetObject"] * 3
        assert objects.counts.bytes_down == len(LARGE)

    def test_one_thread_reads_it_with_one_request(self, s3_server, proxy):
        objects = open_through(s3_server, proxy, "parallel=1")
        objects.put("large", LARGE)
        proxy.script()
        assert objects.get("large") == LARGE
        assert proxy.requests == ["GetObject"]

    def test_any_buffer_can_be_uploaded(self, objects):
        objects.put("large", memoryview(bytearray(LARGE)).cast("Q"))
        assert objects.get("large") == LARGE

    def test_at_the_threshold_it_is_one_request(self, objects, proxy):
        objects.put("large", LARGE[: 5 * MIB])
        assert proxy.requests == ["PutObject"]

    @pytest.mark.parametrize(
        "fault",
        [
            Fault("CreateMultipartUpload", Effect.REFUSE, 503, "SlowDown"),
            Fault("UploadPart", Effect.RESET, last=2),
            Fault("UploadPart", Effect.LOSE_ANSWER, last=2),
            Fault("UploadPart", Effect.REFUSE, 500),
            Fault("CompleteMultipartUpload", Effect.REFUSE, 500),
            Fault("CompleteMultipartUpload", Effect.REFUSE, 200, "InternalError"),
        ],
        ids=lambda fault: f"{fault.operation}-{fault.effect.name}-{fault.status}",
    )
    def test_a_fault_on_the_way_is_not_noticed(self, objects, proxy, s3_server, fault):
        proxy.script(fault)
        assert objects.put_if_absent("large", LARGE)
        assert objects.get("large") == LARGE
        assert unfinished(s3_server, objects) == []

    def test_409_at_the_end_means_to_upload_it_again(self, objects, proxy):
        """It does not mean that there is an object, and the upload is no more."""
        conflict = "ConditionalRequestConflict"
        proxy.script(Fault("CompleteMultipartUpload", Effect.REFUSE, 409, conflict))
        assert objects.put_if_absent("large", LARGE)
        again = ["AbortMultipartUpload", "HeadObject"]
        assert proxy.requests == ["HeadObject", *IN_PARTS, *again, *IN_PARTS]

    def test_409_for_ever_is_reported_and_leaves_nothing(self, proxy, s3_server):
        objects = open_through(s3_server, proxy, "retry_budget_ms=300")
        conflict = "ConditionalRequestConflict"
        proxy.script(Fault("CompleteMultipartUpload", Effect.REFUSE, 409, conflict, last=1_000))
        with pytest.raises(StorageUnavailable, match="the upload keeps failing"):
            objects.put_if_absent("large", LARGE)
        assert objects.get("large") is None
        assert unfinished(s3_server, objects) == []

    @pytest.mark.parametrize("verb", ["put", "put_if_absent"])
    def test_an_upload_that_vanished_is_begun_again(self, objects, proxy, verb):
        """Somebody tidied up unfinished uploads."""
        proxy.script(Fault("CompleteMultipartUpload", Effect.REFUSE, 404, "NoSuchUpload"))
        getattr(objects, verb)("large", LARGE)
        assert objects.get("large") == LARGE
        assert proxy.requests.count("CreateMultipartUpload") == 2

    def test_an_error_removes_the_parts(self, objects, proxy, s3_server):
        proxy.script(Fault("UploadPart", Effect.RESET, first=2, last=1_000))
        with pytest.raises(StorageUnavailable):
            objects.put("large", LARGE)
        assert proxy.requests[-1] == "AbortMultipartUpload"
        assert unfinished(s3_server, objects) == []


class TestDownload:
    @pytest.fixture
    def large(self, objects, proxy):
        objects.put("large", LARGE)
        proxy.script()
        return objects

    @pytest.mark.parametrize(
        "fault",
        [
            Fault("GetObject", Effect.HALF_ANSWER, share=0.1),
            Fault("GetObject", Effect.HALF_ANSWER, first=2, last=3),
            Fault("GetObject", Effect.RESET, first=2, last=3),
            Fault("GetObject", Effect.REFUSE, 503, "SlowDown", first=2, last=3),
        ],
        ids=lambda fault: f"{fault.effect.name}-{fault.first}",
    )
    def test_a_fault_on_the_way_is_not_noticed(self, large, proxy, fault):
        proxy.script(fault)
        assert large.get("large") == LARGE

    def test_an_object_that_changes_meanwhile_is_read_again_from_its_beginning(
        self, s3_server, proxy, large
    ):
        new = bytes(reversed(LARGE))
        direct = S3ObjectStore(large.uri.replace(proxy.endpoint, s3_server.endpoint))
        change = partial(direct.put, "large", new)
        proxy.script(Fault("GetObject", Effect.CHANGE_BEFORE, first=2, last=2, change=change))
        assert large.get("large") == new

    def test_an_object_that_is_deleted_meanwhile_is_none(self, s3_server, proxy, large):
        direct = S3ObjectStore(large.uri.replace(proxy.endpoint, s3_server.endpoint))
        change = partial(direct.delete, "large")
        proxy.script(Fault("GetObject", Effect.CHANGE_BEFORE, first=2, last=2, change=change))
        assert large.get("large") is None

    def test_a_server_that_sends_all_instead_of_a_range_is_found_out(self, s3_server, proxy):
        large = open_through(s3_server, proxy, "retry_budget_ms=300")
        large.put("large", LARGE)
        proxy.script(Fault("GetObject", Effect.IGNORE_RANGE, first=2, last=1_000_000))
        with pytest.raises(StorageUnavailable, match="it keeps changing"):
            large.get("large")


class TestRangeDownload:
    @pytest.mark.parametrize(
        "fault",
        [
            Fault("GetObject", Effect.HALF_ANSWER),
            Fault("GetObject", Effect.REFUSE, 503, "SlowDown"),
            Fault("GetObject", Effect.IGNORE_RANGE),
        ],
        ids=lambda fault: fault.effect.name,
    )
    def test_a_fault_on_the_way_is_not_noticed(self, objects, proxy, fault):
        objects.put("a", b"0123456789")
        proxy.script(fault)
        assert objects.get_range("a", 2, 8, 10) == b"234567"

    @pytest.mark.parametrize(
        ("said", "body"),
        [
            ("bytes 0-1/*", b"01"),
            ("bytes 2-3/10", b"23"),
            ("bytes 0-0/10", b"0"),
            ("bytes 0-1/10", b"0"),
        ],
    )
    def test_another_range_is_no_answer(self, objects, proxy, said, body):
        objects.put("a", b"0123456789")
        headers = {"ETag": '"e"', "Content-Range": said}
        proxy.script(Fault("GetObject", Effect.SAY, 206, headers=headers, body=body))
        assert objects.get_range("a", 0, 2, 10) == b"01"
        proxy.script(Fault("GetObject", Effect.SAY, 206, headers=headers, body=body, last=1_000))
        with pytest.raises(StorageUnavailable, match="the answer is not S3's: "):
            objects.get_range("a", 0, 2, 10)

    def test_one_request_is_enough(self, objects):
        objects.put("a", b"0123456789")
        before = objects.counts
        assert objects.get_range("a", 2, 8, 10) == b"234567"
        sent = objects.counts - before
        assert (sent.gets, sent.heads, sent.bytes_down) == (1, 0, 6)
