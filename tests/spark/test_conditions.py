"""Spark's settings are checked before a claim: for its demands, and for missing protection."""

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.addresses import Listening
from laminar_core.spark.conditions import (
    ENCRYPTS_RPC,
    master_of,
    refuse_unreachable,
    refuse_unsuitable,
    require_encryption,
    slots_at_most,
    unprotected,
)
from laminar_core.spark.facts import SparkFacts

STANDALONE = "spark://host:7077"
SAFE = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def refused(facts: SparkFacts, workers: int = 2) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        refuse_unsuitable(facts, workers)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("option", "setting", "master"),
    [
        (None, None, None),
        ("yarn", None, "yarn"),
        (None, "yarn", "yarn"),
        ("yarn", "yarn", "yarn"),
    ],
)
def test_the_master_may_be_an_option_or_a_setting(option, setting, master) -> None:
    settings = {} if setting is None else {"spark.master": setting}
    assert master_of(option, settings) == master


def test_two_masters_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--master yarn and --conf spark\.master=local"):
        master_of("yarn", {"spark.master": "local"})


@pytest.mark.parametrize(
    "facts",
    [
        SparkFacts("sc://host:15002"),
        SparkFacts("", {"spark.remote": "sc://host:15002"}),
        SparkFacts("local[2]", {"spark.api.mode": "connect"}),
    ],
    ids=str,
)
def test_connect_is_refused(facts: SparkFacts) -> None:
    error = refused(facts)
    assert error.code is ErrorCode.SPARK_UNSUITABLE
    assert "Spark Connect" in str(error)


@pytest.mark.parametrize("master", [STANDALONE, "yarn", "k8s://x", "local-cluster[2,1,1024]"])
def test_dynamic_allocation_is_refused_with_its_setting(master: str) -> None:
    error = refused(SparkFacts(master, {"spark.dynamicAllocation.enabled": "True"}))
    assert error.code is ErrorCode.SPARK_UNSUITABLE
    assert "set spark.dynamicAllocation.enabled=false (--conf)" in str(error)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "local[4,2]"])
def test_without_executors_spark_takes_no_notice_of_dynamic_allocation(master: str) -> None:
    refuse_unsuitable(SparkFacts(master, {"spark.dynamicAllocation.enabled": "true"}), 1)


def test_workers_that_spark_would_end_while_they_work_are_refused() -> None:
    settings = {
        "spark.python.worker.killOnIdleTimeout": "true",
        "spark.python.worker.idleTimeoutSeconds": "60",
    }
    error = refused(SparkFacts(STANDALONE, settings))
    assert "set spark.python.worker.killOnIdleTimeout=false" in str(error)
    settings["spark.python.worker.idleTimeoutSeconds"] = "0"
    refuse_unsuitable(SparkFacts(STANDALONE, settings), 2)


@pytest.mark.parametrize(
    ("master", "settings", "most"),
    [
        ("local", {}, 1),
        ("local[4]", {}, 4),
        ("local[4]", {"spark.task.cpus": "3"}, 1),
        ("local[*]", {}, None),
        ("local[4,7]", {}, 4),
        ("local-cluster[2,3,1024]", {}, 6),
        ("local-cluster[2,3,1024]", {"spark.task.cpus": "2"}, 2),
        (STANDALONE, {}, None),
        (STANDALONE, {"spark.cores.max": "5"}, 5),
        (STANDALONE, {"spark.cores.max": "5", "spark.task.cpus": "2"}, 2),
        (STANDALONE, {"spark.cores.max": "5", "spark.executor.cores": "2"}, 4),
        (STANDALONE, {"spark.cores.max": "many"}, None),
        ("yarn", {}, 2),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ("k8s://x", {"spark.executor.instances": "3", "spark.task.cpus": "2"}, 0),
        ("mesos://x", {}, None),
    ],
)
def test_slots_are_known_where_settings_limit_them(master: str, settings, most) -> None:
    assert slots_at_most(SparkFacts(master, settings))[0] == most


def test_more_workers_than_there_can_be_slots_are_refused_with_both_numbers() -> None:
    facts = SparkFacts("yarn", {"spark.executor.instances": "3"})
    refuse_unsuitable(facts, 3)
    error = refused(facts, workers=4)
    assert error.code is ErrorCode.NOT_ENOUGH_SLOTS
    assert "4 workers need as many task slots at once and Spark has 3" in str(error)
    assert "spark.executor.instances=3" in str(error)


def test_without_executors_spark_itself_says_how_many_slots_there_are() -> None:
    facts = SparkFacts("local[*]", slots=2)
    refuse_unsuitable(facts, 2)
    assert "Spark has 2" in str(refused(facts, workers=3))


def test_on_a_cluster_slots_may_still_come() -> None:
    refuse_unsuitable(SparkFacts(STANDALONE, slots=0), 4)
    refuse_unsuitable(SparkFacts("local-cluster[2,2,1024]", slots=0), 4)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, ("spark.authenticate", "spark.network.crypto.enabled")),
        ({"spark.authenticate": "true"}, ("spark.network.crypto.enabled",)),
        ({"spark.network.crypto.enabled": "true"}, ("spark.authenticate",)),
        ({"spark.authenticate": "yes", **dict.fromkeys(ENCRYPTS_RPC, "no")}, None),
        (SAFE, ()),
        *(({"spark.authenticate": "true", name: "TRUE"}, ()) for name in ENCRYPTS_RPC),
    ],
)
def test_the_key_of_the_workers_needs_both(settings, missing) -> None:
    if missing is None:
        missing = ("spark.authenticate", "spark.network.crypto.enabled")
    assert unprotected(SparkFacts(STANDALONE, settings)) == missing


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_on_one_host_nothing_is_on_a_network(master: str) -> None:
    assert unprotected(SparkFacts(master)) == ()
    require_encryption(SparkFacts(master), "auto")


@pytest.mark.parametrize(
    ("settings", "transport", "said"),
    [
        ({}, "auto", "spark.authenticate is not true, spark.network.crypto.enabled is not true"),
        (SAFE, "tcp", "--transport tcp does not encrypt"),
    ],
)
def test_required_encryption_is_refused_by_what_is_missing(settings, transport, said) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        require_encryption(SparkFacts(STANDALONE, settings), transport)
    assert caught.value.code is ErrorCode.NOT_ENCRYPTED


@pytest.mark.parametrize("transport", ["auto", "curve"])
def test_a_cluster_that_encrypts_is_accepted(transport: str) -> None:
    require_encryption(SparkFacts(STANDALONE, SAFE), transport)


class TestAddressOfTheDriver:
    def refused(self, host: str, master: str = STANDALONE, **asked: str) -> ConfigurationError:
        with pytest.raises(ConfigurationError) as caught:
            refuse_unreachable(SparkFacts(master, {"spark.driver.host": host}), Listening(**asked))
        assert "\n" not in str(caught.value)
        return caught.value

    @pytest.mark.parametrize("host", ["127.0.1.1", "::1", "localhost"])
    @pytest.mark.parametrize("master", [STANDALONE, "yarn", "k8s://https://127.0.0.1:6443"])
    def test_loopback_is_refused_where_workers_are_on_other_hosts(self, host, master) -> None:
        error = self.refused(host, master)
        assert error.code is ErrorCode.LOOPBACK_ADDRESS
        assert "cannot reach the driver at" in str(error)

    @pytest.mark.parametrize(
        ("host", "asked"),
        [("0.0.0.0", {}), ("[::]", {}), ("10.0.0.1", {"advertised": "::"})],
    )
    def test_all_addresses_are_no_address_to_advertise(self, host, asked) -> None:
        error = self.refused(host, **asked)
        assert error.code is ErrorCode.INVALID_OPTION
        assert "is no address that others can connect to" in str(error)

    @pytest.mark.parametrize(
        ("master", "settings", "asked"),
        [
            (STANDALONE, {"spark.driver.host": "10.0.0.1"}, {}),
            (STANDALONE, {"spark.driver.host": "127.0.1.1"}, {"bind": "10.0.0.0/8"}),
            (STANDALONE, {"spark.driver.host": "127.0.1.1"}, {"advertised": "d.example"}),
            (STANDALONE, {"spark.driver.host": "10.0.0.1"}, {"bind": "0.0.0.0"}),
            (
                "k8s://https://host",
                {"spark.driver.host": "d.example", "spark.driver.bindAddress": "0.0.0.0"},
                {},
            ),
            ("spark://127.0.0.1:7077", {"spark.driver.host": "127.0.0.1"}, {}),
            ("spark://[::1]:7077", {"spark.driver.host": "::1"}, {}),
            (STANDALONE, {}, {}),
        ],
    )
    def test_addresses_that_others_can_use_are_accepted(self, master, settings, asked) -> None:
        refuse_unreachable(SparkFacts(master, settings), Listening(**asked))
