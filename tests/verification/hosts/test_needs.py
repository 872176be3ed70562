"""Hosts need root, Linux and a few programs, and whatever is missing is named."""

import os
import shutil
import subprocess
import sys

import pytest

from verification.hosts import needs


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/sbin/{name}")
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", "")
    )


@pytest.mark.usefixtures("capable")
def test_nothing_is_missing_where_everything_is_there() -> None:
    assert needs.missing() is None


@pytest.mark.usefixtures("capable")
def test_another_system_has_no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert needs.missing() == "namespaces are a part of Linux"


@pytest.mark.usefixtures("capable")
def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ss" else name)
    assert needs.missing() == "no ss: install iproute2, util-linux and bash"


@pytest.mark.usefixtures("capable")
def test_other_users_may_make_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert needs.missing() == "only root may make namespaces"


@pytest.mark.usefixtures("capable")
def test_what_the_kernel_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "unshare failed: Operation not permitted\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    why = "the kernel refuses namespaces: unshare failed: Operation not permitted"
    assert needs.missing() == why
