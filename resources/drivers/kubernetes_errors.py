"""Requests to Kubernetes that failed, and why."""

from enum import StrEnum


class KubernetesProblem(StrEnum):
    """Why a request failed."""

    CONFIGURATION = "configuration"
    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


class KubernetesError(Exception):
    """A request that failed: ``problem`` is for programs, the message is one line for people."""

    def __init__(self, problem: KubernetesProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later, with nothing changed."""
        return self.problem in (KubernetesProblem.UNREACHABLE, KubernetesProblem.UNAVAILABLE)
