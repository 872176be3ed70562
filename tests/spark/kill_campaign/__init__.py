"""Processes of a real stream are killed and stopped in every phase of its life.

``python -m tests.spark.kill_campaign --minutes 60 --seed 1`` is the campaign of a night,
``test_kill_campaign.py`` a sample of it. See ``docs/testing.md``.
"""
