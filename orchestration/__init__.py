"""Dagster's view of the streams: assets, checks and jobs; ``definitions`` puts them together."""

if __name__ != "laminar_core.orchestration":
    raise ImportError("import laminar_core.orchestration: this is no package of its own")
