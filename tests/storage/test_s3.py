import pytest

from laminar_core.storage.s3 import S3ObjectStore
from tests.storage.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects(s3_server):
    return S3ObjectStore(s3_server.uri())


class TestS3ObjectStore(ObjectStoreContract):
    pass
