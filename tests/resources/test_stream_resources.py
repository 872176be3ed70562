"""The resources of streams need two places, and the rest can be chosen."""

from typing import cast

import dagster as dg

from laminar_core.resources import (
    CheckpointStoreResource,
    DetachedDriver,
    SparkDriverClient,
    laminar_resources,
)


def test_two_places_are_enough() -> None:
    found = laminar_resources("s3://bucket/streams", logs="/var/log/streams")
    assert found == {
        "laminar_checkpoints": CheckpointStoreResource(uri="s3://bucket/streams"),
        "laminar_driver": SparkDriverClient(),
        "laminar_launcher": DetachedDriver(log_directory="/var/log/streams"),
    }
    assert laminar_resources("s")["laminar_launcher"] == DetachedDriver()


def test_a_place_may_be_a_variable() -> None:
    found = laminar_resources(dg.EnvVar("STORE"), logs=dg.EnvVar("LOGS"))
    store = cast("CheckpointStoreResource", found["laminar_checkpoints"])
    assert store == CheckpointStoreResource(uri=dg.EnvVar("STORE"))
    assert found["laminar_launcher"] == DetachedDriver(log_directory=dg.EnvVar("LOGS"))


def test_what_starts_drivers_can_be_chosen() -> None:
    driver, launcher = SparkDriverClient(jvm_grace_s=1), DetachedDriver(logs_kept=3)
    found = laminar_resources("s", driver=driver, launcher=launcher)
    assert found["laminar_driver"] is driver
    assert found["laminar_launcher"] is launcher
