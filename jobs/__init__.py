"""Spark programs that users run and copy."""

if __name__ != "laminar_core.jobs":
    raise ImportError("`jobs` is part of laminar_core: write `import laminar_core.jobs`")
