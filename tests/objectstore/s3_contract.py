"""The contract of an object store on a server that speaks S3, run for each server.

A subclass has a fixture ``server``.
"""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from laminar_core.objectstore.s3 import S3ObjectStore
from tests.objectstore.fault_proxy import Effect, Fault, FaultProxy
from tests.objectstore.object_store_contract import ObjectStoreContract
from tests.objectstore.s3_servers import BUCKET, client
from tests.objectstore.s3_stores import LARGE, SMALL_PARTS

WRITER = """
import sys
from laminar_core.objectstore.s3 import S3ObjectStore
S3ObjectStore(sys.argv[1]).put_if_absent("key", bytes(11 * 2**20))
"""


class S3Contract(ObjectStoreContract):
    @pytest.fixture
    def objects(self, server):
        return S3ObjectStore(server.uri())

    def test_folders_made_by_the_console_are_no_objects(self, objects, server):
        prefix = objects.uri.removeprefix(f"s3://{BUCKET}/").partition("?")[0]
        for folder in (f"{prefix}/", f"{prefix}/job/", f"{prefix}/empty/"):
            client(server.endpoint).put_object(Bucket=BUCKET, Key=folder, Body=b"")
        objects.put("job/a", b"1")
        assert objects.list("") == ["job/a"]
        assert objects.children("job/") == ["a"]

    def test_listings_have_as_many_pages_as_they_need(self, objects):
        names = [f"job/{number:04}/a" for number in range(1_050)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: objects.put(name, b""), names))
        before = objects.counts
        assert objects.list("job/") == names
        assert objects.children("job/") == [f"{number:04}/" for number in range(1_050)]
        assert (objects.counts - before).lists == 4

    @pytest.mark.parametrize("data", [b"", LARGE], ids=["in one request", "in parts"])
    def test_of_fifty_writers_one_wins_and_gets_the_success(self, server, data):
        racers = 50 if not data else 8  # Parts in memory: 8 * 11 MiB, twice.
        objects = S3ObjectStore(server.uri(*SMALL_PARTS))
        start = threading.Barrier(racers)

        def race(racer: int) -> bool:
            start.wait()
            return objects.put_if_absent("key", b"%02d" % racer + data)

        with ThreadPoolExecutor(racers) as pool:
            won = list(pool.map(race, range(racers)))
        assert sum(won) == 1
        assert objects.get("key") == b"%02d" % won.index(True) + data

    @pytest.mark.parametrize(
        "held",
        [Fault("UploadPart", Effect.HOLD), Fault("CompleteMultipartUpload", Effect.HOLD)],
        ids=lambda fault: fault.operation,
    )
    def test_a_writer_that_is_killed_leaves_nothing_to_see_and_nothing_in_the_way(
        self, server, held
    ):
        with FaultProxy(server.endpoint) as proxy:
            proxy.script(held)
            uri = server.uri(*SMALL_PARTS, endpoint=proxy.endpoint)
            writer = subprocess.Popen([sys.executable, "-c", WRITER, uri])
            try:
                assert proxy.held.wait(30), "it never came so far"
            finally:
                writer.kill()
                writer.wait()
        objects = S3ObjectStore(uri.replace(proxy.endpoint, server.endpoint))
        assert (objects.get("key"), objects.size("key"), objects.list("")) == (None, None, [])
        assert objects.put_if_absent("key", LARGE)
        assert objects.get("key") == LARGE
