"""Spark programs that users run and copy."""

if __name__ != "laminar_core.jobs":
    raise ImportError("import laminar_core.jobs: this is no package of its own")
