"""Scheduling: calls and their requests, who reads what in a step, and the loop that takes the steps."""
