"""Processes that run streams: started, listened to, ended."""
