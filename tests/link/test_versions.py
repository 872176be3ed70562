"""Driver and workers run the same Laminar, and nearly the same Python and pyarrow."""

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.versions import Versions, own_versions, require_same

DRIVER = Versions(laminar="1.2.3", python="3.11.4", pyarrow="21.0.1")


def test_the_versions_of_this_process_are_full() -> None:
    assert all(v.count(".") >= 1 for v in own_versions().model_dump().values())
    require_same(own_versions(), own_versions(), "here")


@pytest.mark.parametrize("changes", [{}, {"python": "3.11.9"}, {"pyarrow": "21.4.0"}])
def test_what_makes_no_difference_is_accepted(changes) -> None:
    require_same(DRIVER, DRIVER.model_copy(update=changes), "far")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"laminar": "1.2.4"}, "Laminar 1.2.4 and the driver 1.2.3"),
        ({"python": "3.12.4"}, "Python 3.12.4 and the driver 3.11.4"),
        ({"pyarrow": "2.0.1"}, "pyarrow 2.0.1 and the driver 21.0.1"),
    ],
)
def test_both_versions_and_the_host_are_named(changes, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"host far has {named}: install") as caught:
        require_same(DRIVER, DRIVER.model_copy(update=changes), "far")
    assert caught.value.code is ErrorCode.VERSIONS_DIFFER
