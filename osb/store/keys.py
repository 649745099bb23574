"""Names and types of everything we keep in Redis. Nothing here is the truth: the cluster can rebuild all of it.

The scripts in `lua/` compute member keys from a kind, so a Redis cluster cannot route them;
`osb.store.checks` refuses cluster mode. One rule for all: an idle key leaves nothing behind, and what could
stay has a TTL or an owner.

=========================  ======  ===========================================================================
`osb:q:{kind}:dirty`       zset    ns/name -> ms since when it asks for a reconcile
`osb:q:{kind}:later`       zset    the dirty keys of class *later*, same score; others are *now*
`osb:q:{kind}:why`         hash    ns/name -> reason of the last request (dirty keys only; read by people)
`osb:q:{kind}:deep`        set     a full pass is owed
`osb:q:{kind}:run`         zset    ns/name -> ms when the lease of its run ends
`osb:q:{kind}:tok`         hash    ns/name -> random token of its run: what every ledger script proves
`osb:q:{kind}:taken`       set     the run took the debt of a full pass
`osb:q:{kind}:seen`        hash    ns/name -> due time as it was when the run began
`osb:q:{kind}:wake`        zset    ns/name -> ms until which its wake-up is believed to be on the way
`osb:q:{kind}:wakec`       hash    ns/name -> class of that wake-up (1 later, 2 now)
`osb:q:{kind}:wtry`        hash    ns/name -> how often it was repeated
`osb:q:{kind}:due`         zset    ns/name -> ms of its one timer, the earliest asked for
`osb:q:{kind}:fail`        hash    ns/name -> failures in a row (back-off)
`osb:q:{kind}:crash`       hash    ns/name -> workers lost in a row
`osb:q:{kind}:quar`        zset    ns/name -> ms when a quarantined key is tried again
`osb:q:{kind}:gate`        zset    ns/name -> ms, allowance against hot loops; swept by rescue
`osb:q:{kind}:hand:{id}`   string  a hand-sent task that was seen, then `=` its outcome; TTL 1 h
`osb:envelope`             hash    `v1` -> template of a wake-up message made by kombu (osb.store.envelope)
`osb:tick`                 string  `ms`: when the beat that acts was last alive; TTL 10 min
`osb:holder`               string  `ms foreign holder of the installation's Lease or nothing`; TTL 1 min
`osb:cluster`              string  `uid installation`: whose Redis this is (osb.reconcile.pin)
`osb:settings`             string  `ms` and JSON: the workers' settings that decisions depend on; TTL 10 min
`osb:profiles`             hash    uid, version, text: the last good ConfigMap of assign profiles
`osb:watched`              string  `ms`: when some watcher was last fresh; TTL 10 min
`osb:unwatched`            string  `ms seconds`: the last time nobody watched; TTL 1 day
`osb:duty:{name}`          string  owner of a duty; TTL = its lease
`osb:slot:{name}`          string  number of the last time slot in which a periodic duty ran; TTL two periods
`osb:limit:{name}`         hash    `tokens`, `at`: a token bucket; TTL until it is full again
`osb:journal`              stream  the last decisions, about 10,000
`osb:t:{sandbox uid}`      hash    slot index -> msgpack of its task's state; TTL
`osb:mem:{uid}`            hash    what passes of an object remember, JSON values; TTL 2 h
`osb:m:{kind}:doc`         hash    ns/name -> version, uid, indexes, pool, document (lua/mirror_lib_v1.lua)
`osb:m:{kind}:tomb`        hash    ns/name -> version of its deletion, while above the floor
`osb:m:{kind}:meta`        hash    epoch, boot, floor, synced, fresh
`osb:m:{kind}:ix:{i}:{v}`  zset    ns/name of the objects whose index i has value v
`osb:m:poolpod:rank`       hash    ns/pod -> rank|uid, while the pod may be handed out
`osb:l:all`                set     ns/pool of every pool that has a ledger
`osb:l:{ns/pool}:meta`     hash    uid, epoch, boot, state, builder, seq
`osb:l:{ns/pool}:pods`     hash    pod -> state|podUID|sandboxUID|sandbox|slot|seq|op|policy
`osb:l:{ns/pool}:by`       hash    sandboxUID/slot -> pod
`osb:l:{ns/pool}:avail`    zset    pod -> rank: free and ready
`osb:l:{ns/pool}:todo`     zset    pod -> ms since when its entry is unfinished business
`osb:l:{ns/pool}:count`    hash    state -> number of entries
`osb:l:{ns/pool}:new`      hash    parts of a rebuilt ledger before its commit
=========================  ======  ===========================================================================
"""

from __future__ import annotations

QUEUE = "osb:q:"
ENVELOPE = "osb:envelope"
ENVELOPE_FIELD = "v1"
TICK = "osb:tick"
HOLDER = "osb:holder"
CLUSTER = "osb:cluster"
SETTINGS = "osb:settings"
PROFILES = "osb:profiles"
WATCHED = "osb:watched"
UNWATCHED = "osb:unwatched"
JOURNAL = "osb:journal"


def queue(kind: str, part: str) -> str:
    """One part of a kind's work queue, e.g. `queue("pool", "dirty")`."""
    return f"{QUEUE}{kind}:{part}"


def duty(name: str) -> str:
    return f"osb:duty:{name}"


def slot(name: str) -> str:
    return f"osb:slot:{name}"


def limit(name: str) -> str:
    return f"osb:limit:{name}"


def task_states(uid: str) -> str:
    return f"osb:t:{uid}"


# -- the mirror and the ledger (osb.store.mirror, osb.store.ledger) ------------------------------------------------

MIRROR = "osb:m:"
LEDGER = "osb:l:"
LEDGERS = "osb:l:all"
RANK = "osb:m:poolpod:rank"


def mirror(kind: str, part: str) -> str:
    """One part of a kind's mirror, e.g. `mirror("pool", "doc")`."""
    return f"{MIRROR}{kind}:{part}"


def index_prefix(kind: str) -> str:
    return f"{MIRROR}{kind}:ix:"


def index(kind: str, name: str, value: str) -> str:
    """The names of a kind whose index `name` has `value`."""
    return f"{MIRROR}{kind}:ix:{name}:{value}"


def ledger(member: str, part: str) -> str:
    """One part of the ledger of pool `ns/name`, e.g. `ledger("default/warm", "avail")`."""
    return f"{LEDGER}{member}:{part}"
