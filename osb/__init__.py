"""osb: a task-queue controller for warm pools of sandboxes on Kubernetes.

Follow one event through the code, stop by stop. A user creates a BatchSandbox of 100 on a pool with 60 idle pods:

1. `osb.kube.watch` reads the event from the API server as raw JSON.
2. `osb.watch.feed` hands it to `osb.store.forward`, which computes the indexes (`osb.facts.index`) and the keys it
   concerns (`osb.decide.route`) and calls one script, `store/lua/mirror_put_v1.lua`: the mirror moves forward, the
   pool's key becomes dirty and the wake-up is published, or nothing happens because the mirror was already newer.
3. A Celery worker takes the wake-up (`workers.tasks`) and gives the key to `osb.reconcile.handle`, which takes the
   key's lease with a random token (`osb.store.queue`), runs the recipe and turns its outcome into queue operations.
4. `osb.reconcile.serve` (the fast pass of a pool) reads the waiting line and the ready idle pods from Redis.
5. `osb.decide.allocate` decides who gets which pod: pure, testable as a table.
6. `osb.store.ledger` takes exactly those pods with one script, or nothing.
7. `osb.apply.allocation` writes the record (one annotation patch) and `osb.apply.status` the status (one status
   patch) per sandbox; both answers go straight into the mirror (write-through).
8. The pool's full pass (`osb.reconcile.pool`) follows a moment later: `osb.decide.pool` composes scaling, rollout,
   eviction and recycling into a plan; `osb.apply.execute` carries it out; the pool's status is written last.

Words, one per idea:

=============  =====================================================================================================
key            kind/namespace/name: what the queue holds; never an object
dirty          a key that asked for a reconcile; processing: a worker holds its lease
lease, token   the time-limited right to reconcile a key; the random fencing token that every ledger write proves
mirror         the copy of the watched objects in Redis; moved forward by resourceVersion, never back
ledger         who holds which pod, per pool, in Redis; the durable record is the sandbox's alloc-status annotation
record         that annotation: one pod name per slot
slot           index of a pod inside its sandbox; also the index of its task
waiter         a pooled sandbox that misses pods; the line: all waiters of a pool in order
idle           a pool pod nobody holds: ready-idle (may be handed out) or pending-idle (still starting)
held           a pod that a record names; releasing: being recycled; released: recycled and acknowledged
lost           a held pod that is gone, terminal or another UID; suspect: an unclaimed pod with unknown history
recycle        what the pool's policy does to a returned pod: Delete, Restart, Noop
eviction       idle pods that must leave the stock (label, cordon, drain, failed)
=============  =====================================================================================================
"""
