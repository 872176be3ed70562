"""Processes that publish are killed at a step, as a machine that loses power would do it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from laminar_core.objectstore.opening import open_object_store
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.connectors.kafka.publishing import Job
from tests.store.stores import claim

PUBLISH = """
import json, os, signal, sys
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.kafka.committer import KafkaCommitter
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.staging import StagingArea

kafka, topic, uri, generation, die_at, staged = json.loads(sys.argv[1])
store = CheckpointStore.open(uri, "payments")
staging = StagingArea(store.objects, store.paths, f"out-{topic}")

def observe(step):
    if step == die_at:
        os.kill(os.getpid(), signal.SIGKILL)

committer = KafkaCommitter(KafkaSink(kafka, topic, key="id"), staging, observe=observe)
committer.take_over(Generation(generation))
for number, parts in staged:
    committer.commit(CheckpointId(number), parts)
committer.discard_uncommitted(Generation(generation))
"""


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", ["half-produced", "marker-sent", "committed"])
def test_a_process_that_is_killed_is_followed_by_one_that_knows(
    kafka: str, new_topic: Callable[..., str], tmp_path: Path, step: str
):
    store = CheckpointStore(open_object_store(str(tmp_path)), "payments")
    claim(store)
    job = Job(kafka, new_topic(2), store=store)

    def publish(generation: int, die_at: str = "") -> int:
        staged = sorted(job.staged.items())
        words = [kafka, job.topic, str(tmp_path), generation, die_at, staged]
        command = [sys.executable, "-c", PUBLISH, json.dumps(words)]
        return subprocess.run(command, check=False, timeout=120).returncode

    assert publish(1) == 0
    job.stage(1)
    assert publish(2) == 0
    job.stage(2)
    assert publish(3, die_at=step) == -signal.SIGKILL
    job.stage(3)
    assert publish(4) == 0
    assert sorted(job.ids()) == job.expected(3)
