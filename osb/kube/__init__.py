"""The only way to the API server.

`client.connect(settings)` makes a `Kube`. It loads configuration, TLS and tokens with the official client and
sends raw requests through that client's own connection pool (bytes in, bytes out, orjson): objects stay plain
dicts, so that fields newer than us survive. Stops: `transport` (one wrapper for every call: deadline, budget,
metrics, token) → `read`, `write`, `watch`, `exec` (what can be asked) → `errors` (what the answer means).
`events` records Events in the background, `lease` holds the installation's Lease, `install` brings our definitions to
a cluster of our own. Next stop of a watch event: `osb.watch.feed`.
"""
