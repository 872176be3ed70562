"""The report of a task crosses Spark as JSON."""

import json

import pytest

from laminar_core.spark.doctor.facts import HostFacts, JointFacts, LinkFacts

FACTS = HostFacts(
    task=3,
    host="h1",
    python="3.11.7",
    versions={"pyarrow": None},
    joint=JointFacts(
        open_files=1024,
        memory_bytes=1 << 30,
        links=(LinkFacts(sender=1, size_bytes=5, bytes_per_s=2.5),),
    ),
)


def test_a_report_is_the_same_after_its_way():
    assert HostFacts.model_validate(json.loads(FACTS.model_dump_json()), strict=False) == FACTS
    assert FACTS.name == "h1 (task 3)"


def test_a_report_of_another_version_is_refused():
    with pytest.raises(ValueError, match="surprise"):
        HostFacts.model_validate({**FACTS.model_dump(), "surprise": 1})
