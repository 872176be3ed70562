"""Testing, also for users' own jobs: a cluster in one thread, and stores, sources and sinks."""

from laminar_core.testing.campaign import simulate_seeds
from laminar_core.testing.connectors import check_source
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.jobs import Job, with_ledgers
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

__all__ = [
    "Effect",
    "Fault",
    "FaultyStore",
    "Job",
    "Ledger",
    "LedgerSink",
    "MemorySource",
    "Simulation",
    "check_source",
    "simulate_seeds",
    "with_ledgers",
]
