"""An acceptance has an exact form, and is refused if nothing needs it."""

import pytest

from laminar_core.driver.recovery.acceptance import (
    Acceptance,
    AcceptanceKind,
    find_acceptance,
    parse_acceptance,
    unneeded,
)
from laminar_core.errors import ConfigurationError

LOST = Acceptance(AcceptanceKind.SINK_LOST, "out")
DOUBT = Acceptance(AcceptanceKind.SINK_DOUBT, "out", "committed")


@pytest.mark.parametrize(
    "text",
    [
        "source-gap:payments=earliest",
        "source-gap:payments=skip-split",
        "source-drop:payments",
        "lookup-change:rates",
        "sink-lost:out",
        "sink-doubt:out=committed",
        "sink-doubt:out=not",
        "sink-repeat:out",
    ],
)
def test_every_form_reads_back_as_it_was_given(text):
    assert str(parse_acceptance(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "everything",
        "sink-lost",
        "sink-lost:",
        "sink-lost:out=yes",
        "sink-lost:out=",
        "sink-doubt:out",
        "sink-doubt:out=",
        "sink-doubt:out=perhaps",
        "SINK-LOST:out",
    ],
)
def test_another_form_is_refused_with_all_forms(text):
    with pytest.raises(ConfigurationError, match=r"sink-doubt:NAME=committed\|not") as refused:
        parse_acceptance(text)
    assert repr(text) in str(refused.value)


def test_an_acceptance_is_for_one_kind_and_one_name():
    accepted = (LOST, DOUBT)
    assert find_acceptance(accepted, AcceptanceKind.SINK_DOUBT, "out") is DOUBT
    assert find_acceptance(accepted, AcceptanceKind.SINK_DOUBT, "other") is None
    assert find_acceptance(accepted, AcceptanceKind.SINK_REPEAT, "out") is None


def test_what_nothing_needs_is_refused_and_named():
    assert unneeded((LOST, DOUBT), [DOUBT, LOST]) is None
    assert unneeded((), ()) is None
    refused = unneeded((LOST, DOUBT), [DOUBT])
    assert refused is not None
    assert str(refused).startswith("nothing needs --accept sink-lost:out: leave it out")
