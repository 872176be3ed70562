"""How many cores of a standalone cluster the application of a job takes."""

from collections.abc import Mapping

from laminar_core.spark.conditions import SparkFacts


def with_cores(settings: Mapping[str, str], master: str, workers: int) -> dict[str, str]:
    """Return ``settings`` with as many cores as the workers need, unless they say how many.

    Without ``spark.cores.max`` an application takes every core of a standalone cluster, also those
    that come later, and keeps them from its own successor if its driver's host dies. If a task
    takes several cores and no size of executors is set, the number is left open: Spark could deal
    out the cores so that tasks do not fit.
    """
    facts = SparkFacts(master, settings)
    cpus, cores = facts.number("spark.task.cpus", 1) or 1, facts.number("spark.executor.cores")
    if not master.startswith("spark://") or "spark.cores.max" in settings:
        return dict(settings)
    if cores is None:
        needed = workers if cpus == 1 else 0
    else:
        slots = cores // cpus
        needed = -(-workers // slots) * cores if slots else 0
    return {**settings, "spark.cores.max": str(needed)} if needed else dict(settings)
