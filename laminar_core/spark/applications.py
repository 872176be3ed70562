"""End the Spark application of a driver that died, by asking its cluster manager over HTTP.

A standalone master has a page for it (``spark.ui.killEnabled``), whose form is sent as a browser
would send it. YARN's resource manager has an interface. On Kubernetes nothing is to be done:
executors belong to the driver's pod (owner reference), and go with it.

The record in the store says which application, and never where to send a request: only the manager
of this driver's own Spark is asked.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from pyspark.sql import SparkSession

from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.records.spark_application import SparkApplication
from laminar_core.spark.gateway import answer_of
from laminar_core.spark.master_page import fields_to_end

MASTER_UI_PORT = 8080
"""The port of a standalone master's pages, unless ``spark.master.ui.port`` names another."""

ANSWER_MAX_S = 5.0
"""A start does not wait longer than this for one answer."""

ANSWER_BYTES_MAX = 16 << 20
_STANDALONE = re.compile(r"spark://(.+)$")
_OVER = ("FINISHED", "FAILED", "KILLED")
"""States of an application in YARN that it does not leave again."""

GONE = ApplicationEnding("gone")
ENDED = ApplicationEnding("ended")

Setting = Callable[[str], str | None]
"""Returns a setting of Spark or Hadoop by its name; None: it is not set."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer over HTTP, also a refusal."""

    status: int
    body: bytes

    def json(self) -> Mapping[str, Any]:
        """Return the object that it has; empty if it has none."""
        try:
            found: object = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


Request = Callable[[str, str, bytes | None, str], Answer]
"""Sends method, URL, body and content type; raises OSError if there is no answer."""


def end_application(
    application: SparkApplication,
    own: SparkApplication | None,
    setting: Setting,
    user: str,
    request: Request | None = None,
) -> ApplicationEnding:
    """Make the cluster manager end an application; never raises.

    ``own`` is the application of this driver, whose manager is asked.
    """
    ask = request or http_request
    if own is None or own.master != application.master:
        where = "no cluster" if own is None else own.master
        return _left(application, f"this driver uses {where}")
    if own.application_id == application.application_id:
        return GONE
    if application.master.startswith("k8s://"):
        return GONE
    if (standalone := _STANDALONE.match(application.master)) is not None:
        port = setting("spark.master.ui.port") or str(MASTER_UI_PORT)
        hosts = [master.rpartition(":")[0] for master in standalone[1].split(",")]
        pages = [f"http://{host}:{port}" for host in hosts]
        return _first_answer(
            application, pages, lambda page: _end_standalone(application, page, ask)
        )
    if application.master == "yarn":
        managers = list(yarn_managers(setting))
        return _first_answer(
            application, managers, lambda manager: _end_in_yarn(application, manager, user, ask)
        )
    return _left(application, "its cluster manager is unknown")


def _first_answer(
    application: SparkApplication,
    addresses: list[str],
    end: Callable[[str], ApplicationEnding | str],
) -> ApplicationEnding:
    """Ask one manager after the other; those that stand by do not decide."""
    problems: list[str] = []
    for address in addresses:
        try:
            answer = end(address)
        except (OSError, ValueError) as error:
            answer = f"{address} does not answer ({error})"
        if isinstance(answer, ApplicationEnding):
            return answer
        problems.append(answer)
    return _left(application, "; ".join(problems) or "no address of its manager is known")


def _left(application: SparkApplication, problem: str) -> ApplicationEnding:
    return ApplicationEnding("left", f"{problem}; {how_to_end(application)}")


def how_to_end(application: SparkApplication) -> str:
    """Return what a person does about an application that is left."""
    if application.master == "yarn":
        return f"end it with `yarn application -kill {application.application_id}`"
    if application.master.startswith("spark://"):
        return (
            "end it on the page of Spark's master (spark.ui.killEnabled), and set "
            "spark.master.ui.port if that has another port than 8080"
        )
    return "end it with the tools of its cluster"


# --- Spark itself -------------------------------------------------------------------------------


def application_of(spark: SparkSession, master: str) -> SparkApplication | None:
    """Return the application that a cluster manager knows; None: Spark runs in this host's JVM."""
    if not master or master.startswith("local"):
        return None
    found = answer_of(lambda: spark.sparkContext.applicationId, "laminar-application", ANSWER_MAX_S)
    return SparkApplication(application_id=found, master=master) if found else None


def setting_of(spark: SparkSession, name: str) -> str | None:
    """Return a setting of Spark, or of Hadoop as Spark uses it; None: it is not set."""

    def read() -> str | None:
        if (found := spark.conf.get(name, None)) is not None:
            return found
        context: Any = spark.sparkContext
        hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001 - it is nowhere else
        if name.startswith("yarn."):  # Only this class reads YARN's own files.
            hadoop = context._jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(hadoop)  # noqa: SLF001
        value: Any = hadoop.get(name)
        return None if value is None else str(value)

    return answer_of(read, "laminar-setting", ANSWER_MAX_S)


# --- Spark's standalone master ------------------------------------------------------------------


def _end_standalone(
    application: SparkApplication, page: str, request: Request
) -> ApplicationEnding | str:
    """End it on the master with this page; return a problem if that master does not decide."""
    if (active := _active(page, request)) is None:
        return f"{page} is not the active master"
    if application.application_id not in active:
        return GONE
    overview = request("GET", f"{page}/", None, "").body.decode(errors="replace")
    if (fields := fields_to_end(overview, application.application_id)) is None:
        return f"{page} does not offer to end it"
    form = urllib.parse.urlencode(fields).encode()
    request("POST", f"{page}/app/kill/", form, "application/x-www-form-urlencoded")
    # The answer is a redirect to the overview, whether the page did it or not.
    if application.application_id in (_active(page, request) or ()):
        return f"{page} refuses to end it"
    return ENDED


def _active(page: str, request: Request) -> set[str] | None:
    """Return the ids of the active applications; None if this master is not the active one."""
    found = request("GET", f"{page}/json/", None, "").json()
    if found.get("status") != "ALIVE":
        return None
    return {str(each.get("id")) for each in found.get("activeapps", ())}


# --- YARN ---------------------------------------------------------------------------------------


def yarn_managers(setting: Setting) -> Iterator[str]:
    """Yield the addresses of the resource managers' web services.

    Source: ``yarn-default.xml`` of Hadoop.
    """
    secure = setting("yarn.http.policy") == "HTTPS_ONLY"
    name = f"yarn.resourcemanager.webapp.{'https.' if secure else ''}address"
    scheme, port = ("https", 8090) if secure else ("http", 8088)
    ids = (setting("yarn.resourcemanager.ha.rm-ids") or "").split(",")
    for suffix in (f".{each.strip()}" if each.strip() else "" for each in ids):
        host = setting(f"yarn.resourcemanager.hostname{suffix}")
        address = setting(name + suffix) or (host and f"{host}:{port}")
        if address and not address.startswith("0.0.0.0:"):
            yield f"{scheme}://{address}"


def _end_in_yarn(
    application: SparkApplication, manager: str, user: str, request: Request
) -> ApplicationEnding | str:
    """End it with this manager; return a problem if that one does not decide."""
    path = f"/ws/v1/cluster/apps/{application.application_id}/state"
    url = f"{manager}{path}?{urllib.parse.urlencode({'user.name': user})}"
    now = request("GET", url, None, "")
    if now.status == HTTPStatus.NOT_FOUND or now.json().get("state") in _OVER:
        return GONE
    if "state" not in now.json():
        return f"{manager} answers with status {now.status}"
    answer = request("PUT", url, b'{"state": "KILLED"}', "application/json")
    if answer.status in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
        return ENDED
    return f"{manager} refuses to end it (status {answer.status})"


# --- HTTP ---------------------------------------------------------------------------------------


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A manager that stands by redirects; the active one is asked by itself."""

    def redirect_request(
        self, req: object, fp: object, code: object, msg: object, headers: object, newurl: object
    ) -> None:
        """Return None: the redirect itself is the answer."""


def http_request(method: str, url: str, body: bytes | None, content_type: str) -> Answer:
    """Send a request without a proxy, because a cluster's own pages are not behind one.

    Raises:
        OSError: there is no answer within ``ANSWER_MAX_S``.
    """
    headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body else {})
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - http(s) only
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
    try:
        with opener.open(request, timeout=ANSWER_MAX_S) as answer:
            return Answer(answer.status, answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(ANSWER_BYTES_MAX))
