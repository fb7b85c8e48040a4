"""Text for training: sources of token batches and the tokenizer's face.

In the page::

    from daisychain.data import open_source, open_tokenizer

    source = await open_source(spec, seed=1, context=64, micro_batches=1, on_wait=show)
    ids, targets = await source.batch(step, micro_batch=0, rows=8)   # Uint32Array, rows * T each
    async for batch in source.heldout_batches(rows=8, limit=16):
        ...  # batch.ids, batch.targets, batch.tokens, batch.bytes (bits a byte = nats/bytes/ln 2)
    source.cursor(), source.restore(cursor), source.status(), source.close()

    tokenizer = source.tokenizer            # or: await open_tokenizer()
    ids = await tokenizer.encode("text")    # in the Worker
    text = tokenizer.decode(ids)
    decoder = tokenizer.decoder()           # decoder.push(id) -> str, decoder.flush() -> str
    tokenizer.size, tokenizer.end_of_text

``spec`` is ``embedded``, ``fineweb-edu``, ``owner/name[/config[/split]][:column]`` of the Hub, or
``file`` with ``file=own_file(js_file)`` (daisychain.platform.workers). ``on_wait`` is told in
words what is being waited for, and an empty text when the wait is over. If the Hub cannot be
reached the embedded corpus takes over and ``status().notice`` says so (``fallback=False`` raises
instead; a room needs that). ``open_tokenizer("owner/name")`` takes the tokenizer of a model
repository; give it to ``open_source`` as ``tokenizer=``, else the site's own is used.

``batch`` is a function of (seed, step, micro_batch, rows) alone: steps may be repeated, skipped
or computed by another device. ``micro_batches`` given to ``open_source`` is the most that any
step of the run has. Micro-batch m reads from lane m % ``lanes`` (default 1), and lanes share next
to no row group: in a room, as many lanes as devices on one address, each member on lanes of its
own, spare the Hub. Both are part of the run: the same on all devices and for all steps. In a room
one member opens the source, sends ``source.shared()`` (JSON-able) and the others pass it as
``shared=``: they then ask the Hub for rows only.

``source.tokenizer.port.cached_bytes()`` and ``.clear_cache()`` (both awaitable) are for the
button that clears the row groups kept by the browser. All errors are DataError.
"""

from daisychain.data.opening import OwnFile, open_source, open_tokenizer
from daisychain.data.source import HeldoutBatch, SourceStatus, TokenSource, WindowSource
from daisychain.data.stream import StreamSource
from daisychain.data.tokenizer import IncrementalDecoder, Tokenizer

__all__ = [
    "HeldoutBatch",
    "IncrementalDecoder",
    "OwnFile",
    "SourceStatus",
    "StreamSource",
    "TokenSource",
    "Tokenizer",
    "WindowSource",
    "open_source",
    "open_tokenizer",
]
