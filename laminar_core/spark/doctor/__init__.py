"""The examination of a cluster before a job runs on it: ``laminar doctor``."""
