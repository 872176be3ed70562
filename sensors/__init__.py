"""Dagster sensors: they read the checkpoint store, report, and request runs."""

if __name__ != "laminar_core.sensors":
    raise ImportError("import laminar_core.sensors: this is no package of its own")
