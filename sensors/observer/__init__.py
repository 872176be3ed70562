"""The observer: reports events of a store to Dagster, once each."""
