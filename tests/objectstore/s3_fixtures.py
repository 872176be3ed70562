"""One S3 server for all tests of a session, and a proxy in front of it for each that wants one."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.s3_servers import S3Server, environment, ministack, versitygw


@pytest.fixture(scope="session")
def aws_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in environment(tmp_path_factory.mktemp("aws")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def s3_server(aws_environment: None) -> Iterator[S3Server]:
    del aws_environment  # It must be there before the server is.
    if find_spec("ministack") is None:  # It needs a newer boto3 than the oldest that we allow.
        pytest.skip("ministack, the S3 server of the tests, is not among the oldest packages")
    with ministack() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw_server(aws_environment: None, tmp_path_factory) -> Iterator[S3Server]:
    del aws_environment
    root: Path = tmp_path_factory.mktemp("versitygw")
    with versitygw(root) as server:
        yield server


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as running:
        yield running
