"""Graphs of byte edges and calls, built from syntax by Thompson's construction; UTF-8, and tries of many texts."""
