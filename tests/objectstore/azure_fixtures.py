"""One Azurite for all tests of a session, and a proxy in front of it for each that wants one.

obstore is imported by these fixtures' tests only, so what needs it is imported late.
"""

import pytest

from tests.servers.absence import server_is_absent


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory):
    from tests.objectstore import azure_servers  # noqa: PLC0415

    if azure_servers.AZURITE is None:
        server_is_absent("azurite")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in azure_servers.environment().items():
            patch.setenv(name, value)
        with azure_servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
            yield server


@pytest.fixture
def azure_proxy(azure_server):
    from tests.objectstore.azure_servers import AzureProxy  # noqa: PLC0415

    with AzureProxy(azure_server) as running:
        yield running
