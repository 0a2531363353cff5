"""Scheduling: calls and their requests, the scheduler of steps, and the engine's loop."""
