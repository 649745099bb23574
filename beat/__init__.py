"""Time: `celery -A beat beat`. Any number may run; one acts (a lease in Redis).

Beat sends no messages of its own. Its scheduler runs the duties of `osb.reconcile.duties`: due times become dirty
keys, lost keys come back, every key is offered again within ten minutes, and the installation's Lease is renewed.
"""

from beat.app import app

celery = app

__all__ = ["app", "celery"]
