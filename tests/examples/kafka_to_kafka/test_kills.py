"""Kills happen when so many rows were read, with a checkpoint between two of them."""

from examples.kafka_to_kafka.kills import KillPlan

PLAN = (("worker", 0.2), ("driver", 0.5))


def test_a_kill_waits_for_its_share_of_the_rows_and_for_a_checkpoint() -> None:
    plan = KillPlan(100, PLAN)
    assert plan.hear({"event": "workers-running", "pids": [7, 8]}) is None
    assert plan.worker_pids == [7, 8]
    assert plan.hear({"event": "progress", "rows_in": 30}) is None, "nothing to go back to"
    plan.hear({"event": "checkpoint-completed"})
    assert plan.hear({"event": "progress", "rows_in": 10}) is None
    assert plan.hear({"event": "progress", "rows_in": 20}) == "worker"
    assert plan.hear({"event": "progress", "rows_in": 90}) is None
    plan.hear({"event": "checkpoint-completed"})
    plan.hear({"event": "data-flowing"})
    assert plan.hear({"event": "progress", "rows_in": 90}) is None, "the restart begins anew"
    plan.hear({"event": "checkpoint-completed"})
    assert plan.hear({"event": "progress", "rows_in": 90}) == "driver"
    plan.hear({"event": "checkpoint-completed"})
    assert plan.hear({"event": "progress", "rows_in": 99}) is None
    assert plan.done == ["worker", "driver"]
