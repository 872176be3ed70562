import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.azure_options import AzureOptions
from laminar_core.objectstore.opening import address, bucket_options, open_object_store, place_below


def refusal(uri: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        AzureOptions.parse(uri)
    assert caught.value.code is ErrorCode.INVALID_OPTION
    return str(caught.value)


def test_what_is_the_default_is_not_in_the_uri():
    options = AzureOptions.parse("az://container/a/b/?account_name=me&retry_budget_ms=30000")
    assert (options.bucket, options.prefix, options.account_name) == ("container", "a/b", "me")
    assert options.uri == "az://container/a/b?account_name=me"
    assert AzureOptions.parse(options.uri) == options == bucket_options(options.uri)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("az://", "it needs the name of a container, for example az://container/prefix"),
        ("az://box?acount_name=x", "'acount_name' is not a parameter; there are: account_name,"),
        ("az://box?endpoint=localhost:1", "endpoint: it must look like https://host:port"),
        ("az://box/a%20b", "prefix: ' ' is no letter or digit"),
        ("az://box/a/../b", "prefix: no empty part, no '.' and no '..'"),
        ("az://box?encryption_key=x", "keys of your own are not supported"),
        ("az://box?client_id=x&client_id=y", "every parameter can be given once"),
    ],
)
def test_a_mistake_is_named(uri, said):
    assert said in refusal(uri)


@pytest.mark.parametrize("name", ["account_key", "sas_key", "sas_token", "client_secret", "token"])
def test_a_secret_is_refused_and_not_repeated(name):
    said = refusal(f"az://container?{name}=hidden")
    assert "set AZURE_STORAGE_ACCOUNT_KEY" in said
    assert "hidden" not in said
    assert "hidden" not in refusal("az://me:hidden@container")


def test_its_parameters_stay_behind_every_place_below_and_out_of_addresses():
    uri = "az://container/p?account_name=me"
    assert place_below(uri, "a") == "az://container/p/a?account_name=me"
    objects = open_object_store(uri)
    assert address(objects, "job/a") == "az://container/p/job/a"
    assert objects.counts.puts == 0
