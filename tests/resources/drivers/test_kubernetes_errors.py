"""Only what a later attempt may not meet again is worth one."""

import pytest

from laminar_core.resources.drivers.kubernetes_errors import KubernetesError, KubernetesProblem


@pytest.mark.parametrize("problem", KubernetesProblem)
def test_a_server_that_is_away_may_come_back(problem: KubernetesProblem) -> None:
    is_passing = KubernetesError(problem, "said").is_passing
    assert is_passing is (problem in ("unreachable", "unavailable"))
