"""Scheduled housekeeping: retention, drills, audits, left-over files and costs."""
