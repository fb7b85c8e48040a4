"""The cluster: devices in a room train one model together, bit for bit the same on each.

The pure half (no I/O, no clock of its own): ``protocol`` (the state machine), ``messages`` and
``wire`` (what travels), ``reassembly``, ``reduce_plan`` and ``exchange`` (the integer all-reduce),
``roster``, ``schedule``, ``times`` and ``hashtree``.  docs/CLUSTER.md explains them together.
"""
