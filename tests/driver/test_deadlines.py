import pytest

from laminar_core.driver.deadlines import Deadlines
from laminar_core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"silence_ms": 2_999}, "silence_ms must be at least 3000, not 2999"),
        ({"progress_ms": 0}, "progress_ms must be at least 1, not 0"),
        ({"register_ms": float("nan")}, "register_ms must be at least 1, not nan"),
    ],
)
def test_times_that_would_end_every_worker_are_refused(changes, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Deadlines(**changes)
