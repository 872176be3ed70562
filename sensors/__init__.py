"""Dagster sensors: they look at the checkpoint store and say what they saw."""

if __name__ != "laminar_core.sensors":
    raise ImportError("import laminar_core.sensors: this is no package of its own")
