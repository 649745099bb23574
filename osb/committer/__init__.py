"""The image committer: the program of a snapshot's commit Job. It saves containers of one pod as pushed images.

It runs on the pod's node with the node's containerd socket, drives `nerdctl`, and is asked for two things: to
commit (freeze all, commit all, push all, unfreeze all) or to unfreeze what a killed committer left frozen.
Standard library only.

Files: `main` (arguments, environment, exit code), `commit` (the order of the steps), `freezer` (what must be
unfrozen in the end), `nerdctl` (one method per command), `credentials` (which registry login applies), `report`
(the termination message). `python -m osb.committer` starts it; `images/committer/Dockerfile` packs it.
"""
