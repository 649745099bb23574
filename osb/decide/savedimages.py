"""Images that a snapshot saved: the reference that a pod uses, and the same in words."""

from __future__ import annotations

from collections.abc import Iterable


def image_reference(uri: str, digest: str) -> str:
    """`repository@digest` when the digest is known: a tag may be cached on the node, or moved."""
    if not digest:
        return uri
    head, slash, last = uri.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def told(containers: Iterable[tuple[str, str, str]]) -> str:
    """`image R (container C)` for each of (container, image, digest)."""
    found = [f"image {image_reference(uri, digest)} (container {name})" for name, uri, digest in containers if uri]
    return ", ".join(found) or "no image that is known"
