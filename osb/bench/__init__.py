"""Load, measurement, report: how fast this installation serves, beside what the API server alone could do.

`main` reads the command line and picks rows; `rig` starts a cluster (simulated, or the binaries of
KUBEBUILDER_ASSETS, or a given one) and the controller's own processes; `loader` is the load generator, a process of
its own; `observer` watches and remembers when what became visible; `stages` lays the processes' marks side by side;
the `measure_*` modules are the rows; `goals` holds what each row is held to; `report` prints.

All latencies end at the client's side: when a watch of this process shows the endpoints.
"""
