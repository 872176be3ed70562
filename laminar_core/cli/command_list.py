"""Every command of ``laminar`` with its summary, in the order of the help."""

from laminar_core.cli.groups import CommandEntry

SECTIONS = {
    "Run pipelines": (
        CommandEntry("run", "run:run", "Run the pipeline that TARGET builds."),
        CommandEntry(
            "recover", "recover:recover", "Report what TARGET would continue from, then run it."
        ),
        CommandEntry("doctor", "doctor:doctor", "Examine a cluster before a job runs on it."),
        CommandEntry(
            "config", "config:config", "Show every option, its value, and where it was set."
        ),
    ),
    "Watch jobs": (
        CommandEntry("status", "status:status", "Show the state of a job."),
        CommandEntry("top", "top:top", "Show a running job live."),
        CommandEntry("jobs", "status:jobs", "List the jobs in a store, and the state of each."),
    ),
    "Command a running job": (
        CommandEntry("stop", "control:stop", "Stop a running job after a last checkpoint."),
        CommandEntry("mode", "control:mode", "Change how the checkpoints of a running job align."),
        CommandEntry(
            "savepoint",
            "savepoints:savepoint",
            "Take a savepoint of a running job, or look at savepoints.",
        ),
        CommandEntry(
            "control", "control:control", "Show the commands that were sent to running jobs."
        ),
    ),
    "Checkpoints": (
        CommandEntry(
            "checkpoints",
            "checkpoints:checkpoints",
            "Take, show, read and verify the checkpoints of a job.",
        ),
        CommandEntry(
            "drills", "drills:drills", "Prove that checkpoints restore, and list such drills."
        ),
        CommandEntry(
            "retention",
            "retention:retention",
            "Delete old checkpoints of a job, and left-over files.",
        ),
        CommandEntry(
            "audit", "audit:audit", "Show who did what to a job, and verify the audit log."
        ),
    ),
    "Try and measure": (
        CommandEntry(
            "simulate",
            "simulate:simulate",
            "Simulate small jobs with faults, and check the outcome.",
        ),
        CommandEntry("bench", "bench:bench", "Run the benchmarks NAMES, or all of them."),
    ),
}

ALIASES = (
    CommandEntry("checkpoint", "control:checkpoint"),
    CommandEntry("drill", "drill:drill"),
)
"""Older names of ``checkpoints take`` and ``drills run``. They stay, for scripts."""
