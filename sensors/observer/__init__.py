"""What happens in a store, told to Dagster once each."""
