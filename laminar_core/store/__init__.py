"""What a job keeps in its object store: checkpoints, generations, savepoints, and its logs."""
