"""URIs of schemas: which are absolute, and how others are joined to them."""

from __future__ import annotations

from urllib.parse import urljoin


def is_absolute(uri: str) -> bool:
    """Whether a URI says by itself what it is about."""
    return "://" in uri or uri.startswith("urn:")


def join(base: str, reference: str) -> str:
    """A reference as a URI, seen from a base. Raises ValueError for what is none."""
    if not base or is_absolute(reference):
        return reference
    if base.startswith("urn:"):
        return reference or base
    return urljoin(base, reference)
