"""Endpoints: one module for each API or group of routes."""
