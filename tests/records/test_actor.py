"""An actor keeps its name and kind whatever its reason; older records get their kind by name."""

import pytest

from laminar_core.records.actor import LAMINAR, Actor, ActorKind, kind_by_name


def test_another_reason_makes_no_other_actor() -> None:
    nightly = Actor("schedule nightly", ActorKind.SCHEDULE, "it is two o'clock", "run-7")
    again = nightly.because("the disk is full")
    assert (again.name, again.kind, again.run_id) == (nightly.name, nightly.kind, "run-7")
    assert (nightly.reason, again.reason) == ("it is two o'clock", "the disk is full")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sensor payments_recovery", ActorKind.SENSOR),
        ("schedule nightly", ActorKind.SCHEDULE),
        (LAMINAR.name, ActorKind.PROGRAM),
        ("ann", ActorKind.PERSON),
        ("sensors", ActorKind.PERSON),
        ("root in Dagster", ActorKind.PERSON),
    ],
)
def test_names_that_laminar_gave_say_the_kind(name: str, kind: ActorKind) -> None:
    assert kind_by_name({"actor": name}) is kind
