"""A form is checked before a request is made, and the launchpad explains each field."""

import dagster as dg
import pytest

from laminar_core.orchestration.acts import valid_form
from laminar_core.orchestration.control.forms import (
    CommandForm,
    ModeForm,
    PinForm,
    SavepointForm,
    StopForm,
)
from laminar_core.orchestration.control.jobs import ACTS
from tests.orchestration.acted_on import JOBS


@pytest.mark.parametrize(
    ("form", "values", "line"),
    [
        (CommandForm, {"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        (CommandForm, {"timeout": "10"}, "timeout: '10' has no unit"),
        (CommandForm, {"reason": ""}, "reason: String should have at least 1 character"),
        (SavepointForm, {"target": "backups/s"}, "target: give an absolute path, or a URI"),
        (SavepointForm, {"target": ""}, "target: give an absolute path, or a URI"),
        (SavepointForm, {"target": "hdfs://h/s"}, "target: "),
        (StopForm, {"how": {"savepoint": {"target": "s"}}}, "how: savepoint: target: give an abs"),
        (ModeForm, {"mode": {"overtake": {"after": "soon"}}}, "mode: overtake: after: 'soon' is"),
        (PinForm, {"checkpoint_id": 0}, "checkpoint_id: Input should be greater than or equal"),
        (PinForm, {"checkpoint_id": 1, "name": "a/b"}, "name: "),
        (PinForm, {"checkpoint_id": 1, "hold_for": "ever"}, "hold_for: 'ever' is not a duration"),
    ],
)
def test_a_mistake_is_reported_with_its_field(form, values, line) -> None:
    with pytest.raises(dg.Failure) as caught:
        valid_form(form, values)
    assert caught.value.description is not None
    assert caught.value.description.startswith(f"config: {line}")


def test_what_is_decisive_has_no_default() -> None:
    required = {
        act.name: {name for name, field in act.form.model_fields.items() if field.is_required()}
        for act in ACTS
    }
    assert required == {
        "checkpoint": set(),
        "savepoint": {"target"},
        "stop": {"how"},
        "mode": {"mode"},
        "pin": {"checkpoint_id"},
        "unpin": {"checkpoint_id"},
        "pause": set(),
        "resume": set(),
        "export_savepoint": {"checkpoint_id", "target"},
    }


def test_every_field_is_explained() -> None:
    for act in ACTS:
        for name, field in act.form.model_fields.items():
            assert field.description, f"{name} of {act.name}"


def test_the_launchpad_gets_descriptions_and_defaults() -> None:
    (op,) = JOBS["mode"].all_node_defs
    schema = JOBS["mode"].get_job_snapshot().config_schema_snapshot
    (shape,) = [
        snap
        for snap in schema.all_config_snaps_by_key.values()
        if {"mode", "timeout"} <= {field.name for field in snap.fields or ()}
    ]
    fields = {field.name: field for field in shape.fields or ()}
    assert op.name == "laminar_mode"
    assert fields["mode"].is_required
    assert "as it was started" in (fields["mode"].description or "")
    assert fields["timeout"].default_value_as_json_str == '"10 minutes"'
