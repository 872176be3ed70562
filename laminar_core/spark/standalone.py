"""Ask the master of a standalone cluster for its applications and the cores that they hold.

Spark tells a driver neither. The master's web interface has a page of JSON, if it can be reached.
"""

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from laminar_core.spark.conditions import UI_PORT_SETTING
from laminar_core.spark.facts import SparkFacts

UI_PORT = 8080
ANSWER_MAX_S = 2.0
ANSWER_BYTES_MAX = 4 << 20
NAMED_MAX = 3


class Application(BaseModel):
    """A running application, and the cores that it holds."""

    model_config = ConfigDict(frozen=True)
    id: str
    name: str
    cores: int


class StandaloneCluster(BaseModel):
    """The cores of a cluster. Other fields of the page are left out."""

    model_config = ConfigDict(frozen=True)
    status: str
    cores: int
    coresused: int
    activeapps: tuple[Application, ...] = ()


def cores_line(facts: SparkFacts, own_id: str) -> str:
    """Return who holds the cores of a standalone cluster; empty: it is none, or does not answer."""
    found = active_cluster(facts)
    return "" if found is None else described(found, own_id)


def active_cluster(facts: SparkFacts) -> StandaloneCluster | None:
    """Return what the active master shows; None: there is none, or it does not answer.

    A master that is still recovering the applications of its predecessor is not active.
    """
    for host, port in _pages(facts):
        found = ask(host, port)
        if found is not None and found.status == "ALIVE":
            return found
    return None


def has_forgotten(facts: SparkFacts, own_id: str) -> bool:
    """Return whether the active master says that it has no application of this driver.

    Spark registers an application once, so such a master never gives it anything again. No answer
    proves nothing: then it is False.
    """
    found = active_cluster(facts)
    return found is not None and all(each.id != own_id for each in found.activeapps)


def ask(host: str, port: int) -> StandaloneCluster | None:
    """Return what a master shows, or None if it shows nothing of the kind."""
    try:
        with closing(HTTPConnection(host, port, timeout=ANSWER_MAX_S)) as connection:
            connection.request("GET", "/json/")
            answer = connection.getresponse()
            return StandaloneCluster.model_validate_json(answer.read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException, ValidationError):
        return None


def described(cluster: StandaloneCluster, own_id: str) -> str:
    """Put it in a line."""
    holders = sorted((a for a in cluster.activeapps if a.cores), key=lambda a: -a.cores)
    named = [
        f"this job {a.cores}" if a.id == own_id else f"{a.name} ({a.id}) {a.cores}"
        for a in holders[:NAMED_MAX]
    ]
    if len(holders) > NAMED_MAX:
        named.append(f"{len(holders) - NAMED_MAX} more {sum(a.cores for a in holders[NAMED_MAX:])}")
    who = f": {', '.join(named)}" if named else ""
    return f"{cluster.coresused} of the cluster's {cluster.cores} cores are taken{who}"


def _pages(facts: SparkFacts) -> Iterator[tuple[str, int]]:
    """Yield host and port of each master's page; of several masters one is alive."""
    if not facts.master.startswith("spark://"):
        return
    port = facts.number(UI_PORT_SETTING, UI_PORT) or UI_PORT
    for master in facts.master.removeprefix("spark://").split(","):
        host = urlsplit(f"//{master.strip()}").hostname
        if host:
            yield host, port
