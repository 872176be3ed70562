"""Retention, drills, audits, left-overs and costs, on schedules."""
