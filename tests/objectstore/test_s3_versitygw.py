"""A second server keeps the contract of stores, if the machine has it."""

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.opening import probe
from laminar_core.objectstore.s3 import S3ObjectStore
from tests.objectstore.s3_contract import S3Contract
from tests.objectstore.s3_servers import VERSITYGW
from tests.servers.absence import server_is_absent

if VERSITYGW is None:
    server_is_absent("versitygw")


class TestS3ObjectStoreOnVersitygw(S3Contract):
    @pytest.fixture
    def server(self, versitygw_server):
        return versitygw_server

    @pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
    def test_wrong_credentials_are_a_mistake_to_correct(self, objects, monkeypatch, name):
        monkeypatch.setenv(name, "wrong")
        with pytest.raises(ConfigurationError, match="set AWS_ACCESS_KEY_ID and") as caught:
            probe(objects)
        assert caught.value.code is ErrorCode.STORE_CREDENTIALS

    def test_botocore_follows_to_the_region_of_the_bucket(self, versitygw_server):
        objects = S3ObjectStore(versitygw_server.uri("region=eu-central-1"))
        probe(objects)
        assert objects.counts.retries == 0
