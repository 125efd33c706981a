"""Rewards: functions of finished sequences, evaluated once per state (in worker processes if asked) and cached."""
