from typing import get_args

from laminar_core.driver.events import Finished, JobEvent
from laminar_core.pipeline import events


def test_every_event_of_a_job_is_public():
    classes = {each.__name__ for each in get_args(JobEvent)}
    assert classes == set(events.__all__) - {"JobEvent", "JobListener", "UnreachablePair"}


def test_a_listener_can_tell_events_apart_by_their_class():
    event = Finished(
        time_ms=1, outcome="stopped", rows_in=3, rows_out=2, rows_late=0, checkpoints=1
    )
    match event:
        case events.Finished(outcome=outcome, rows_in=rows_in):
            assert (outcome, rows_in) == ("stopped", 3)
