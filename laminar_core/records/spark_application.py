"""The Spark application in which the workers of a generation run."""

from typing import Annotated

from pydantic import Field

from laminar_core.records.record import Record


class SparkApplication(Record):
    """Names an application for its cluster manager, which keeps its cores when its driver dies."""

    application_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]
    """It becomes part of a URL, so it has nothing else in it."""
    master: Annotated[str, Field(min_length=1, max_length=2000)]
    """As Spark has it: ``spark://host:7077``, ``yarn``, ``k8s://…``."""
