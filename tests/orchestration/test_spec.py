"""A spec is a command that a person could type, or refused with the name of the field."""

from pathlib import Path

import dagster as dg
import pytest
from pydantic import ValidationError

from laminar_core.orchestration.spec import CheckpointPolicy, StreamSpec

ORDERS = StreamSpec(name="orders", program=Path("orders.py"))


def after_the_program(spec: StreamSpec) -> list[str]:
    words = spec.command("/store")
    assert words[1:5] == ["-m", "laminar_core.cli", "run", "orders.py"]
    assert words[-1] == "--json"
    return words[5:-1]


def test_defaults_are_left_to_the_command_line() -> None:
    assert after_the_program(ORDERS) == [
        *("--store", "/store", "--job", "orders", "--workers", "2"),
        *("--checkpoint-interval", "10 seconds", "--keep-all"),
    ]


def test_everything_reaches_the_command_line() -> None:
    spec = StreamSpec(
        name="orders",
        program=Path("orders.py"),
        arguments={"input": "a b"},
        workers=3,
        checkpoints=CheckpointPolicy(interval="1s", alignment="unaligned", scrub_rate="256 KiB"),
        state={"backend": "rocksdb", "memory": "1GiB"},
        recovery={"start_timeout": "1 hour"},
        network={"require_encryption": True},
        spark={"master": "yarn", "conf": {"spark.executor.memory": "4g"}},
    )
    assert spec.start_timeout_ms == 3_600_000
    assert after_the_program(spec) == [
        *("--set", "input=a b", "--store", "/store", "--job", "orders", "--workers", "3"),
        *("--checkpoint-interval", "1s", "--unaligned", "--scrub-rate", "256 KiB", "--keep-all"),
        *("--state-backend", "rocksdb", "--state-memory", "1GiB", "--start-timeout", "1 hour"),
        *("--require-encryption", "--master", "yarn", "--conf", "spark.executor.memory=4g"),
    ]


def test_older_names_of_fields_mean_the_same() -> None:
    older = StreamSpec.model_validate(
        {
            "name": "orders",
            "program": "orders.py",
            "start_timeout": "1 hour",
            "silence_timeout": "1 minute",
            "progress_timeout": None,
            "require_encryption": True,
            "scrub_rate": "0",
            "spark_conf": {"spark.a": "b"},
            "checkpoints": {"snapshots": "changelog", "alignment_timeout": "5s"},
        }
    )
    assert older.start_timeout_ms == 3_600_000
    words = " ".join(after_the_program(older))
    assert "--start-timeout 1 hour" in words
    assert "--silence-timeout 1 minute --require-encryption --conf spark.a=b" in words
    assert "--alignment 5s --scrub-rate 0 --keep-all --snapshots changelog" in words
    assert ORDERS.start_timeout_ms == 600_000


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"name": "no/job"}, "name", "is no job name"),
        ({"workers": 0}, "workers", "greater than or equal to 1"),
        ({"owner": "somebody"}, "owner", "e-mail address, or team:NAME"),
        ({"workerz": 3}, "workerz", "not permitted"),
        (
            {"checkpoints": {"scrub_rate": "1M"}},
            "checkpoints.scrub_rate",
            "'1M' is not a size: write for example 64MiB",
        ),
        ({"checkpoints": {"interval": "soon"}}, "checkpoints.interval", "soon"),
        ({"checkpoints": {"alignment": "sometimes"}}, "checkpoints.alignment", "none of aligned"),
        ({"checkpoints": {"snapshot": "full"}}, "checkpoints.snapshot", "not permitted"),
        ({"schedules": {"retention": "61 * * * *"}}, "schedules.retention", "crontab(5)"),
        ({"schedules": {"drill": "daily"}}, "schedules.drill", "@daily"),
        ({"schedules": {"costs": ""}}, "schedules.costs", "five fields"),
    ],
)
def test_a_mistake_is_refused_with_the_name_of_the_field(changes, field, said) -> None:
    with pytest.raises(ValidationError) as caught:
        StreamSpec(**{"name": "orders", "program": "orders.py", **changes})
    (error,) = caught.value.errors()
    assert ".".join(str(part) for part in error["loc"]) == field
    assert said in error["msg"]


def test_a_secret_is_read_by_the_driver_and_stands_in_no_command() -> None:
    spec = StreamSpec(
        name="orders",
        program="orders.py",
        arguments={"user": "ann", "password": dg.EnvVar("ORDERS_PASSWORD")},
    )
    words = after_the_program(spec)
    assert words[:4] == ["--set", "user=ann", "--set", "password=env:ORDERS_PASSWORD"]


def test_a_variable_is_refused_where_it_would_be_taken_for_its_name() -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": dg.EnvVar("KEY")}
    with pytest.raises(ValidationError, match=r'here take os\.environ\["KEY"\]') as caught:
        StreamSpec(name="orders", program="orders.py", spark={"conf": conf})
    assert "spark.conf.spark.hadoop.fs.s3a.secret.key" in str(caught.value)


def test_a_changed_program_is_another_code_version(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text("one")
    spec = StreamSpec(name="orders", program=program)
    before = spec.code_version
    program.write_text("two")
    assert spec.code_version != before
    assert spec.code_version != spec.model_copy(update={"arguments": {"a": "b"}}).code_version


def test_words_of_a_start_come_last_and_replace_the_number_of_workers() -> None:
    spec = StreamSpec(name="payments", program=Path("jobs/payments.py"), workers=2)
    words = spec.command("/store", ["--restore", "42", "--workers", "3"])
    assert words.count("--workers") == 1
    assert words[-5:] == ["--restore", "42", "--workers", "3", "--json"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("launch", "somehow"),
        ("retention", {"keep_last": 0}),
        ("retention", {"max_age": "long"}),
        ("alerts", {"cooldown": "soon"}),
        ("prices", {"gb_month": -1}),
        ("stop_savepoints", "savepoints"),
        ("schedules", {"retentoin": "@daily"}),
    ],
)
def test_a_policy_within_the_spec_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        StreamSpec.model_validate({"name": "payments", "program": "p.py", field: value})


def test_a_job_is_not_stuck_between_two_checkpoints() -> None:
    seldom = {"interval": "1 hour"}
    with pytest.raises(ValidationError, match=r"\(10 minutes\) must be longer than checkpoints"):
        StreamSpec.model_validate({"name": "orders", "program": "p.py", "checkpoints": seldom})
    patient = {"checkpoint_age_max": "2 hours"}
    assert StreamSpec.model_validate(
        {"name": "orders", "program": "p.py", "checkpoints": seldom, "alerts": patient}
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "card-payments"),
        ("name", "card.payments"),
        ("program", ""),
        ("tags", {"team": "a:b"}),
        ("tags", {"my team": "a"}),
        ("tags", {"laminar/stream": "other"}),
        ("tags", {"team": "a" * 64}),
        ("kinds", {"par quet"}),
        ("checkpoints", {"alignment": "aligned", "alignment_timeout": "1 second"}),
    ],
)
def test_what_dagster_would_refuse_at_load_is_refused_by_name(field: str, value: object) -> None:
    values = {"name": "payments", "program": "p.py", field: value}
    with pytest.raises(ValidationError, match=field):
        StreamSpec.model_validate(values)
