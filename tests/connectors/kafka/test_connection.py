"""Addresses and settings are checked at once, and a secret is never shown."""

import pickle  # noqa: TID251 - as Spark sends it to the workers

import pytest

from laminar_core.connectors.kafka import KafkaConnection
from laminar_core.errors import ConfigurationError, ErrorCode

SECRET = "a-value-that-nobody-may-read"
SAFE = KafkaConnection(
    "a:9093,b:9093",
    settings={"security.protocol": "SASL_SSL", "sasl.username": "laminar"},
    secrets={"sasl.password": "LAMINAR_TEST_PASSWORD"},
)


def refused(*arguments, **more) -> str:
    with pytest.raises(ConfigurationError) as caught:
        KafkaConnection(*arguments, **more)
    assert caught.value.code is ErrorCode.INVALID_OPTION
    return str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["broker", "broker:", ":9092", "a:1,b", "broker:kafka", "", "broker:0", "broker:74628"],
)
def test_an_address_without_a_port_is_refused(address: str) -> None:
    assert "write host:port" in refused(address)


@pytest.mark.parametrize("name", ["isolation.level", "enable.auto.commit", "transactional.id"])
@pytest.mark.parametrize("where", ["settings", "secrets"])
def test_a_setting_that_exactly_once_rests_on_is_refused(name: str, where: str) -> None:
    assert f"Laminar itself decides the Kafka setting {name}" in refused(
        "a:1", **{where: {name: "x"}}
    )


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
)
def test_a_secret_among_the_settings_is_refused_and_not_repeated(name: str) -> None:
    said = refused("a:1", settings={name: SECRET})
    assert "environment variable" in said
    assert SECRET not in said


def test_secrets_come_from_the_environment_when_a_client_is_made(monkeypatch) -> None:
    monkeypatch.setenv("LAMINAR_TEST_PASSWORD", SECRET)
    settings = SAFE.client_settings()
    assert settings["sasl.password"] == SECRET
    assert settings["bootstrap.servers"] == "a:9093,b:9093"
    assert SECRET not in repr(SAFE)
    assert SECRET.encode() not in pickle.dumps(SAFE)
    assert SAFE.without_secrets(f"wrong: {SECRET}") == "wrong: …"


def test_a_secret_that_begins_as_another_one_is_replaced_whole(monkeypatch) -> None:
    monkeypatch.setenv("KEY_PASSWORD", "hunter")
    monkeypatch.setenv("PASSWORD", "hunter2-of-the-cluster")
    secrets = {"ssl.key.password": "KEY_PASSWORD", "sasl.password": "PASSWORD"}
    connection = KafkaConnection("a:9093", secrets=secrets)
    said = "wrong: hunter2-of-the-cluster, hunter"
    assert connection.without_secrets(said) == "wrong: …, …"


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_is_named(monkeypatch, value: str | None) -> None:
    monkeypatch.delenv("LAMINAR_TEST_PASSWORD", raising=False)
    if value is not None:
        monkeypatch.setenv("LAMINAR_TEST_PASSWORD", value)
    with pytest.raises(ConfigurationError, match="variable LAMINAR_TEST_PASSWORD is not set"):
        SAFE.client_settings()


def test_it_is_a_value() -> None:
    again = pickle.loads(pickle.dumps(SAFE))
    assert again == SAFE == KafkaConnection.of(SAFE)
    assert hash(again) == hash(SAFE)
    assert KafkaConnection.of("a:1") == KafkaConnection("a:1")
