"""Celery, kept thin: `celery -A workers worker`, `celery -A workers call`, `celery -A workers flower`.

If Celery were exchanged, only this package and `beat` would change. Start at `workers.app`, then `workers.tasks`.
"""

from workers.app import app

celery = app

__all__ = ["app", "celery"]
