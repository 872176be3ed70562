"""The same contract on a second server, if the machine has it."""

import pytest

from laminar_core.storage.s3 import S3ObjectStore
from tests.storage.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects(versitygw_server):
    return S3ObjectStore(versitygw_server.uri())


class TestS3ObjectStoreOnVersitygw(ObjectStoreContract):
    pass
