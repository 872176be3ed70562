"""Dagster sensors: they read the checkpoint store, report, and request runs."""

from laminar_core.host.extras import needs_extra

with needs_extra("dagster", "Dagster sensors"):
    from laminar_core.sensors.policy import AlertPolicy

__all__ = [
    "AlertPolicy",
]

if __name__ != "laminar_core.sensors":
    raise ImportError("`sensors` is part of laminar_core: write `import laminar_core.sensors`")
