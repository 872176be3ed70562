import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import create_model

import laminar_core
from laminar_core.errors import ConfigurationError, CorruptCheckpointError
from laminar_core.records import limits
from laminar_core.records.manifest import CheckpointManifest, GenerationEnd, Heartbeat, parse_record
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.paths import KEY_LENGTH_MAX, PART_LENGTH_MAX
from laminar_core.records.record import Record
from tests.records.manifests import manifest

for _module in pkgutil.walk_packages(laminar_core.__path__, "laminar_core."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)


def below(record_type: type[Record]) -> Iterator[type[Record]]:
    for each in record_type.__subclasses__():
        yield each
        yield from below(each)


RECORDS = sorted(
    {each for each in below(Record) if each.__module__.startswith("laminar_core.")},
    key=lambda each: f"{each.__module__}.{each.__qualname__}",
)
DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


def test_the_documented_limits_are_the_ones_that_hold():
    section = DOCUMENT.partition("## Limits")[2].partition("\n## ")[0]
    cells = "".join(re.findall(r"^\|[^|]*\|(.*)\|$", section, re.MULTILINE))
    assert [int(n.replace(",", "")) for n in re.findall(r"[0-9][0-9,]*", cells)] == [
        limits.RECORD_BYTES_MAX,
        limits.RECORD_VALUES_MAX,
        limits.FILE_BYTES_MAX,
        limits.NUMBER_MAX,
        limits.NUMBER_IMPORTED_MAX,
        limits.PARALLELISM_MAX,
        limits.TEXT_LENGTH_MAX,
        limits.ITEMS_MAX,
        limits.CHANNELS_MAX,
        limits.DEPTH_MAX,
        limits.PATH_LENGTH_MAX,
        KEY_LENGTH_MAX,
        PART_LENGTH_MAX,
    ]


def unbounded(schema: object, *, text_is_bounded: bool, where: str = "") -> Iterator[str]:
    """Places of a JSON schema that take any number, any text, or any number of members."""
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from unbounded(each, text_is_bounded=text_is_bounded, where=f"{where}.{number}")
    if not isinstance(schema, dict):
        return
    fixed = schema.keys() & {"const", "enum"}
    match schema.get("type"):
        case "integer" | "number" if not fixed:
            ends = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
            if not all(schema.keys() & set(end) for end in ends):
                yield where
        case "string" if not fixed and not text_is_bounded and "maxLength" not in schema:
            yield where
        case "array" if "maxItems" not in schema:
            yield where
        case "object" if "properties" not in schema and "maxProperties" not in schema:
            yield where
    for name, each in schema.items():
        if name not in {"default", "examples", "enum", "const", "required"}:
            yield from unbounded(each, text_is_bounded=text_is_bounded, where=f"{where}.{name}")


@pytest.mark.parametrize("record_type", RECORDS)
def test_no_field_of_a_record_is_without_a_bound(record_type):
    text_is_bounded = record_type.model_config.get("str_max_length") == limits.TEXT_LENGTH_MAX
    schema = record_type.model_json_schema()
    assert list(unbounded(schema, text_is_bounded=text_is_bounded)) == []
    if not record_type.__name__.startswith("_"):
        assert record_type.model_config.get("extra") == "forbid"


def test_all_kinds_of_records_are_walked():
    names = {each.__name__ for each in RECORDS}
    assert {"CheckpointManifest", "AuditRecord", "PinRecord", "SavepointRecord"} <= names
    assert len(names) > 30


@pytest.mark.parametrize("field", [int, str, float, tuple[int, ...], dict[str, str]])
def test_the_walk_finds_a_field_without_a_bound(field):
    schema = create_model("Forgotten", field=(field, ...)).model_json_schema()
    assert list(unbounded(schema, text_is_bounded=False)) != []


def sealed(record: CheckpointManifest, **changes: object) -> bytes:
    """Return a wrong record with the right digest, as a forger can make it."""
    return record.model_copy(update=changes).to_bytes()


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    "changes",
    [
        {"parallelism": {"window": 10**12}},
        {"parallelism": {"window": limits.PARALLELISM_MAX}},
        {"max_parallelism": 10**9},
        {"checkpoint_id": 10**10},
        {"generation": 10**30},
        {"triggered_at_ms": 10**18},
        {"duration_ms": 1e300},
        {"parallelism": {"a\nb" * 10_000: 0}},
        {"job": "j" * (limits.TEXT_LENGTH_MAX + 1)},
        {"operators_description": {"window": {"a": [[10**40]]}}},
    ],
)
def test_a_forged_manifest_is_refused_in_one_short_line(changes):
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_manifest(sealed(manifest(), **changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("progress", "is_refused"),
    [
        (nested(limits.DEPTH_MAX - 2), False),
        (nested(limits.DEPTH_MAX + 1), True),
        ({"rows": [0] * 1_000}, False),
        ({"rows": [0] * (limits.ITEMS_MAX + 1)}, True),
        ({"rows": limits.COUNT_MAX}, False),
        ({"rows": limits.COUNT_MAX + 1}, True),
    ],
)
def test_a_free_form_value_has_a_budget_of_its_own(progress, is_refused):
    data = Heartbeat(sequence=1, at_ms=0).model_copy(update={"progress": progress}).to_bytes()
    if is_refused:
        with pytest.raises(CorruptCheckpointError):
            parse_record(Heartbeat, data)
    else:
        assert parse_record(Heartbeat, data).progress == progress


def test_a_reason_is_shortened_by_its_writer_and_refused_by_a_reader():
    """It may contain the message of any error, which must not keep the record from being made."""
    long = "x" * (limits.TEXT_LENGTH_MAX + 1)
    written = GenerationEnd(generation=1, outcome="failed", reason=long)
    assert len(written.reason) == limits.TEXT_LENGTH_MAX
    assert parse_record(GenerationEnd, written.to_bytes()) == written
    forged = written.model_copy(update={"reason": long}).to_bytes()
    with pytest.raises(CorruptCheckpointError, match="reason"):
        parse_record(GenerationEnd, forged)


def test_what_no_reader_accepts_is_not_written(monkeypatch):
    monkeypatch.setattr("laminar_core.records.record.RECORD_BYTES_MAX", 50)
    with pytest.raises(ConfigurationError, match="the Heartbeat cannot be written: it has"):
        Heartbeat(sequence=1, at_ms=0).to_bytes()


def test_a_record_of_very_many_values_is_not_parsed(monkeypatch):
    data = Heartbeat(sequence=1, at_ms=0, progress={"rows": [0] * 1_000}).to_bytes()
    monkeypatch.setattr("laminar_core.records.record.RECORD_VALUES_MAX", 999)
    with pytest.raises(CorruptCheckpointError, match="999 is the most that is read"):
        parse_record(Heartbeat, data)
