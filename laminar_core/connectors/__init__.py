"""Where rows come from and where they go: replayable sources, two-phase-commit sinks."""
