"""The Celery application of beat: the workers' own, with our scheduler (`celery -A beat beat`)."""

from __future__ import annotations

from workers.app import app

app.conf.beat_scheduler = "beat.schedule:Scheduler"
app.conf.beat_max_loop_interval = 1

__all__ = ["app"]
