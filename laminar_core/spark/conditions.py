"""Conditions that Spark must meet for the workers of a job, checked before the job is claimed.

Spark reports some of them late, in its own terms, and again at each restart; some it never reports.
The functions decide from settings alone. Absent settings have Spark's defaults.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.addresses import (
    Listening,
    addresses_of,
    is_loopback,
    is_unspecified,
    no_address,
)
from laminar_core.spark.facts import SparkFacts
from laminar_core.spark.memory import MEMORY_SETTINGS

UI_PORT_SETTING = "spark.master.ui.port"

ENCRYPTS_RPC = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
)
"""Each of them encrypts what Spark carries between the driver and its executors."""

RELEVANT = (
    "spark.master",
    "spark.remote",
    "spark.api.mode",
    "spark.dynamicAllocation.enabled",
    "spark.python.worker.killOnIdleTimeout",
    "spark.python.worker.idleTimeoutSeconds",
    "spark.task.cpus",
    "spark.cores.max",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.authenticate",
    "spark.driver.host",
    "spark.driver.bindAddress",
    UI_PORT_SETTING,
    *MEMORY_SETTINGS,
    *ENCRYPTS_RPC,
)
"""Every setting that is looked at here."""

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]$")
_INSTANCES_BY_DEFAULT = 2  # On YARN and Kubernetes, as long as allocation is not dynamic.


def master_of(master: str | None, settings: Mapping[str, str]) -> str | None:
    """Return the requested master, by option or by setting; None: neither.

    Raises:
        ConfigurationError: the two differ.
    """
    by_setting = settings.get("spark.master")
    if master is not None and by_setting not in (None, master):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"--master {master} and --conf spark.master={by_setting} differ: give one of them",
        )
    return master or by_setting


def refuse_connect(facts: SparkFacts) -> None:
    """Verify that this is no Spark Connect.

    Raises:
        ConfigurationError: workers would run on a server that cannot reach this process.
    """
    remote = facts.settings.get("spark.remote", "")
    if facts.settings.get("spark.api.mode", "").strip().lower() == "connect":
        remote = remote or "spark.api.mode=connect"
    if facts.master.startswith("sc://") or remote:
        raise ConfigurationError(
            ErrorCode.SPARK_UNSUITABLE,
            f"Spark Connect ({remote or facts.master}) cannot run a job: workers and coordinator "
            "talk to each other directly, and Connect has no place for either. Run the driver "
            "where it can use the cluster's own master",
        )


def refuse_unsuitable(facts: SparkFacts, workers: int) -> None:
    """Verify the conditions for a stage whose tasks start together and run for long.

    Raises:
        ConfigurationError: the workers would never start, or would be terminated.
    """
    refuse_connect(facts)
    if facts.is_on("spark.dynamicAllocation.enabled") and not _LOCAL.match(facts.master):
        raise ConfigurationError(
            ErrorCode.SPARK_UNSUITABLE,
            "Spark refuses tasks that start together while it allocates executors dynamically: "
            "set spark.dynamicAllocation.enabled=false (--conf), and give the job its executors",
        )
    idle_s = facts.number("spark.python.worker.idleTimeoutSeconds", 0)
    if facts.is_on("spark.python.worker.killOnIdleTimeout") and idle_s:
        raise ConfigurationError(
            ErrorCode.SPARK_UNSUITABLE,
            f"Spark would end each worker after {idle_s} s, because a worker sends nothing to its "
            "executor: set spark.python.worker.killOnIdleTimeout=false (--conf)",
        )
    _require_slots(facts, workers)


def refuse_unreachable(facts: SparkFacts, listening: Listening) -> None:
    """Verify that workers on other hosts can reach the driver at the address that they get.

    Raises:
        ConfigurationError: it is 0.0.0.0 or ::, or means each host itself, and not all of Spark is
            on one host.
    """
    host = facts.settings.get("spark.driver.host", "")
    asked = listening.on_driver(host, facts.settings.get("spark.driver.bindAddress"))
    bind = "" if is_unspecified(asked.bind) else asked.bind
    advertised = asked.advertised or bind or host
    if is_unspecified(advertised):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the driver: {no_address(advertised)} (--advertised-address, spark.driver.host)",
        )
    on_loopback = facts.master.startswith("spark://") and is_loopback(
        urlsplit(facts.master.partition(",")[0]).hostname or ""
    )
    if not advertised or "/" in advertised or on_loopback:
        return
    found = advertised if asked.advertised else addresses_of(advertised)[0]
    if is_loopback(found):
        raise ConfigurationError(
            ErrorCode.LOOPBACK_ADDRESS,
            f"workers on other hosts cannot reach the driver at {found}, the address of "
            f"{advertised} on this host: set --bind-address or spark.driver.host to an address of "
            "this host in their network, or mend /etc/hosts",
        )


def _require_slots(facts: SparkFacts, workers: int) -> None:
    """Without executors slots are what they are; else they come later, up to a limit."""
    slots, by = slots_at_most(facts)
    if _LOCAL.match(facts.master) and facts.slots is not None:
        slots, by = facts.slots, facts.master
    if slots is not None and workers > slots:
        raise ConfigurationError(
            ErrorCode.NOT_ENOUGH_SLOTS,
            f"{workers} workers need as many task slots at once and Spark has {slots} ({by}): "
            "give it more, or run with fewer workers",
        )


def slots_at_most(facts: SparkFacts) -> tuple[int | None, str]:
    """Return how many tasks can ever run at once, and what limits them; None: nothing known."""
    cpus = facts.number("spark.task.cpus", 1) or 1
    cores = facts.number("spark.executor.cores")
    if local := _LOCAL.match(facts.master):
        threads = local[1] or "1"
        return (None, "") if threads == "*" else (int(threads) // cpus, facts.master)
    if cluster := _LOCAL_CLUSTER.match(facts.master):
        return int(cluster[1]) * (int(cluster[2]) // cpus), facts.master
    if facts.master.startswith("spark://"):
        most = facts.number("spark.cores.max")
        if most is None:
            return None, ""
        in_executors = most // cores * (cores // cpus) if cores else most // cpus
        return in_executors, f"spark.cores.max={most}"
    if facts.master == "yarn" or facts.master.startswith("k8s://"):
        instances = facts.number("spark.executor.instances", _INSTANCES_BY_DEFAULT)
        assert instances is not None
        by = f"spark.executor.instances={instances}, spark.executor.cores={cores or 1}"
        return instances * ((cores or 1) // cpus), by
    return None, ""


def unprotected(facts: SparkFacts) -> tuple[str, ...]:
    """Return the settings without which Spark lets others read the key of the workers."""
    if facts.on_one_host:
        return ()
    missing = () if facts.is_on("spark.authenticate") else ("spark.authenticate",)
    encrypts = any(map(facts.is_on, ENCRYPTS_RPC))
    return missing if encrypts else (*missing, ENCRYPTS_RPC[0])


def require_encryption(facts: SparkFacts, transport: str) -> None:
    """Verify that all traffic of the job between hosts is encrypted.

    Raises:
        ConfigurationError: Spark, or the workers, would send data unencrypted.
    """
    problems: Sequence[str] = tuple(f"{name} is not true" for name in unprotected(facts))
    if transport == "tcp":
        problems = (*problems, "--transport tcp does not encrypt")
    if problems:
        raise ConfigurationError(
            ErrorCode.NOT_ENCRYPTED,
            f"encryption is required, and {', '.join(problems)}: set it (--conf NAME=true, also "
            "for the cluster), or leave --require-encryption out",
        )
