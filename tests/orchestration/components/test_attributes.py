"""The schema for ``dg check yaml`` accepts values of the right type, or templates of them."""

import pytest
from jsonschema import Draft202012Validator

from laminar_core.orchestration.components import StreamComponent

STREAM = {"name": "totals", "program": "totals.py"}


def problems(**attributes: object) -> list[str]:
    schema = StreamComponent.get_model_cls().model_json_schema()
    found = Draft202012Validator(schema).iter_errors({**STREAM, **attributes})
    return [".".join(map(str, error.absolute_path)) for error in found]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"workers": 3, "arguments": {"rows": 5, "loud": True, "ratio": 0.5, "input": "a"}},
        {"workers": "{{ env.WORKERS }}", "launch": "{{ env.LAUNCH }}"},
        {"alerts": {"recoveries_max": "{{ env.N }}"}, "kinds": "{{ env.KINDS }}"},
        {
            "checkpoints": {
                "interval": None,
                "keep_last": "{{ env.N }}",
                "max_uncommitted": "{{ x }}",
            }
        },
        {"schedules": {"drill": None}, "state": {"backend": "rocksdb"}},
    ],
)
def test_values_and_templates_of_them_are_accepted(attributes: dict[str, object]) -> None:
    assert problems(**attributes) == []


@pytest.mark.parametrize(
    ("attributes", "place"),
    [
        ({"workerz": 3}, ""),
        ({"workers": "many"}, "workers"),
        ({"launch": "somehow"}, "launch"),
        ({"alerts": {"recoveries_max": "many"}}, "alerts.recoveries_max"),
        ({"checkpoints": "{{ env.ALL }}"}, "checkpoints"),
        ({"program": 3}, "program"),
        ({"arguments": {"rows": [1]}}, "arguments"),
    ],
)
def test_what_is_neither_is_found_at_its_place(attributes: dict[str, object], place: str) -> None:
    assert problems(**attributes) == [place]
