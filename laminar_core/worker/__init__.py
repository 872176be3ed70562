"""The data plane: one long-lived task that hosts a subtask of every vertex."""
