"""The durable data of one job: checkpoints, generations, savepoints, and logs."""
