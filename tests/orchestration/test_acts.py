"""Every run that acts on a stream ends with one line, and is not tried a second time."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import dagster as dg
import pytest
from pydantic import Field, model_validator

from laminar_core.configuration import RecoveryOptions
from laminar_core.errors import ErrorCode, LaminarError
from laminar_core.orchestration.acts import (
    act_job,
    act_tags,
    form_schema,
    in_one_line,
    reason_words,
    refuse_temporary_instance,
    valid_form,
)
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import ACT_TAG, ACTS_ON_TAG

SPEC = StreamSpec(name="orders", program=Path("orders.py"), tags={"tier": "gold"})

TOO_SMALL = "Input should be greater than or equal to 1"


class Form(dg.Config):
    count: Annotated[int, Field(ge=1)]
    times: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _not_seven(self) -> "Form":
        if self.count * self.times == 7:
            raise ValueError("count and times must not make 7")
        return self


def test_a_job_says_on_what_it_acts_and_is_not_tried_again() -> None:
    @dg.op(name="laminar_mode")
    def nothing() -> None: ...

    job = act_job(Group((SPEC,)), "mode", nothing, "It does nothing.")
    dg.Definitions.validate_loadable(dg.Definitions(jobs=[job]))
    assert (job.name, job.description) == ("laminar_mode", "It does nothing.")
    assert job.tags == {ACT_TAG: "mode", "dagster/max_retries": "0"}
    assert act_tags(SPEC, "mode") == {
        "tier": "gold",
        ACTS_ON_TAG: "orders",
        "dagster/max_runtime": "21600",
    }


def test_a_form_offers_the_streams_and_needs_a_choice_only_among_several() -> None:
    other = SPEC.model_copy(update={"name": "bids"})
    both, one = form_schema(Form, Group((SPEC, other))), form_schema(Form, Group((SPEC,)))
    assert list(both.fields) == ["stream", "count", "times"]
    choice = both.fields["stream"]
    assert choice.is_required
    assert isinstance(choice.config_type, dg.Enum)
    assert [each.config_value for each in choice.config_type.enum_values] == ["orders", "bids"]
    assert one.fields["stream"].default_value == "orders"


def test_a_run_that_may_supervise_the_stream_has_all_the_time_it_needs() -> None:
    supervised = SPEC.model_copy(update={"launch": "supervised"})
    assert "dagster/max_runtime" not in act_tags(supervised, "start")
    assert "dagster/max_runtime" not in act_tags(supervised, "import_savepoint")
    assert "dagster/max_runtime" in act_tags(supervised, "stop")
    assert "dagster/max_runtime" in act_tags(SPEC, "import_savepoint")


def test_a_run_may_take_longer_than_the_start_that_it_waits_for() -> None:
    """Goal: Dagster ends what takes longer, and the driver with it that reads its checkpoint."""
    slow = SPEC.model_copy(update={"recovery": RecoveryOptions(start_timeout="4 hours")})
    assert int(act_tags(slow, "start")["dagster/max_runtime"]) > 2 * 4 * 3600


def test_an_error_ends_the_run_with_its_line() -> None:
    error = LaminarError(ErrorCode.COMMAND_TIMEOUT, "no answer within 60 s")
    with pytest.raises(dg.Failure) as caught, in_one_line():
        raise error
    assert caught.value.description == "no answer within 60 s"
    assert caught.value.metadata["error_code"].value == "command-timeout"
    assert not caught.value.allow_retries


def test_a_bug_stays_one() -> None:
    with pytest.raises(KeyError), in_one_line():
        raise KeyError


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"count": 0}, f"config: count: {TOO_SMALL}"),
        ({"count": 0, "times": 0}, f"config: count: {TOO_SMALL}; times: {TOO_SMALL}"),
        ({"count": 7}, "config: count and times must not make 7"),
    ],
)
def test_a_mistake_in_a_form_is_reported_with_its_field(values, line) -> None:
    with pytest.raises(dg.Failure) as caught:
        valid_form(Form, values)
    assert caught.value.description == line
    assert not caught.value.allow_retries


def test_a_run_that_dagster_would_forget_is_refused(tmp_path: Path) -> None:
    temporary = tmp_path / ".tmp_dagster_home_x"
    temporary.mkdir()
    with (
        dg.DagsterInstance.local_temp(str(temporary)) as instance,
        pytest.raises(dg.Failure, match="set DAGSTER_HOME"),
    ):
        refuse_temporary_instance(instance)


@pytest.mark.parametrize("text", ["no column \0", "\U0001f600" * 200_000])
def test_the_message_of_any_error_is_the_reason_of_a_process(text: str) -> None:
    _, word = reason_words(text)
    assert subprocess.run([sys.executable, "-c", "", word], check=True).returncode == 0
