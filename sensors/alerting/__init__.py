"""Alerts: who is notified of problems, and how."""
