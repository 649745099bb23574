"""The task executor: a small HTTP service in a sandbox's pod that runs the sandbox's task as real processes.

The controller dials port 5758 and speaks only `POST /setTasks` (the complete desired set) and `GET
/getTasks`. Standard library only, so that it stays below 30 MB and idles without waking up: nothing is polled
unless a task is being stopped or has a time limit; the rest is looked up when somebody asks.

Files: `wire` (JSON shapes), `task` (one task and its folder on disk), `table` (the set of tasks and its rules),
`process` (real processes), `sidecar` (processes in the main container's namespaces), `fake` (no processes, for
tests of many addresses), `http` (the server), `main` (arguments and start). `python -m osb.executor` starts it.
"""
