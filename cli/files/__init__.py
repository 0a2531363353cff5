"""Prompts from files, results to files."""
