"""Dagster components: a stream, and the store of all streams, described in ``defs.yaml``.

``dg list components`` finds them through the entry point ``dagster_dg_cli.registry_modules``.
"""

from laminar_core.orchestration.components.store import StoreComponent
from laminar_core.orchestration.components.stream import StreamComponent

__all__ = ["StoreComponent", "StreamComponent"]
