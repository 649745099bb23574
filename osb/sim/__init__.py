"""The simulated cluster: an in-memory Kubernetes API server over HTTP, and a fake kubelet and scheduler.

`SimCluster` (`osb.sim.cluster`) runs both in a thread; `python -m osb.sim` as a process. One request goes
`server` → `target` → (`faults`) → `writes` or `lists` or `watching` → `storage`. The kubelet
(`osb.sim.kubelet`) works through the API only, so it drives a real control plane too. Where this and a real
control plane differ, this is wrong.
"""

from osb.sim.cluster import SimCluster

__all__ = ["SimCluster"]
