"""Endpoints: one module for each kind of request."""
