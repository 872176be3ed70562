"""Which job is meant."""

import pytest

from laminar_core.cli.jobs import open_job
from laminar_core.errors import ConfigurationError
from laminar_core.storage.local import LocalObjectStore


@pytest.fixture
def root(tmp_path):
    LocalObjectStore(tmp_path).put("payments/x", b"")
    LocalObjectStore(tmp_path).put("_probe/x", b"")
    return str(tmp_path)


def test_the_only_job_need_not_be_named(root):
    assert open_job(root, None).job == "payments"
    assert open_job(root, "payments").job == "payments"


def test_there_must_be_one(root, tmp_path):
    with pytest.raises(ConfigurationError, match="has no job payment; its jobs: payments"):
        open_job(root, "payment")
    LocalObjectStore(root).put("clicks/x", b"")
    with pytest.raises(ConfigurationError, match="the jobs clicks, payments: choose one with"):
        open_job(root, None)
    with pytest.raises(ConfigurationError, match="has no jobs"):
        open_job(str(tmp_path / "new"), None)
