"""The stream that is attacked: the shipped payments, in processes that can be held."""

import faulthandler
import signal

from laminar_core.jobs.payments import pipeline as payments
from laminar_core.pipeline import Pipeline
from tests.spark.kill_campaign import pauses

pauses.install("driver")
faulthandler.register(signal.SIGUSR1)  # Where a driver stands that the campaign waits for in vain.


def pipeline(input: str, output: str, rows_per_second: float) -> Pipeline:  # noqa: A002
    """As shipped."""
    return payments(input, output, rows_per_second)
