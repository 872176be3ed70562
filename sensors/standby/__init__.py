"""Keep a standby of each stream that wants one."""
