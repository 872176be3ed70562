"""Who logs in may do what rules allow, and nothing else; who comes another way may do all."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.servers.secured_kafka import PASSWORD, VARIABLE, SecuredKafka


def describe(settings: dict, topic: str) -> set[str]:
    admin = AdminClient({"log_level": 0, **settings})  # It has to live as long as the request.
    asked = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    return {operation.name for operation in asked[topic].result(20).authorized_operations}


def test_a_user_may_do_what_rules_allow(
    secured_kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    topic = secured_kafka.topic()
    user = secured_kafka.user()
    settings = secured_kafka.connection(user).client_settings()
    with pytest.raises(KafkaException) as refused:
        describe(settings, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured_kafka.allow(user, ("TOPIC", f"{topic[:-1]}*", "READ"))
    assert describe(settings, topic) == {"READ", "DESCRIBE"}
    assert describe({"bootstrap.servers": secured_kafka.plain}, topic) > {"READ", "WRITE", "DELETE"}
