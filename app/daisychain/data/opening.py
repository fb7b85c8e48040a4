"""Open a source of tokens or a tokenizer by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from daisychain.data.hub import (
    HUB_ADDRESS,
    Listing,
    RemoteFile,
    list_files,
    tokenizer_address,
)
from daisychain.data.port import DataFile, DataPort, PortFailure, TokenBlock
from daisychain.data.reader import DatasetReader, remote_files
from daisychain.data.retry import Retry, passes
from daisychain.data.sharing import Shared, read_plan
from daisychain.data.slices import Footer
from daisychain.data.source import Heldout, TokenSource, WindowSource
from daisychain.data.spec import EMBEDDED, OWN_FILE, DatasetSpec, parse_dataset
from daisychain.data.stream import Preloaded, StreamFacts, StreamSource, measure
from daisychain.data.tokenizer import Tokenizer, load_tokenizer
from daisychain.errors import DataError

TOKENIZER_FILE = "data/tokenizer.json"
TOKENIZER_NAME = "daisychain-16512"
EMBEDDED_FILE = "data/embedded.parquet"
EMBEDDED_HELDOUT_FILE = "data/embedded-heldout.parquet"
MAX_EMBEDDED_BYTES = 1 << 24
MAX_TEXT_BYTES = 1 << 27
FILE_KINDS = {"txt": "text", "md": "text", "jsonl": "jsonl", "parquet": "parquet"}
"""What a file of one's own is, by the ending of its name."""
OWN_HELDOUT_SHARE = 20
"""The last one in twenty tokens of a file of one's own is held out."""
OPENING_ATTEMPTS = 4


@dataclass(frozen=True)
class OwnFile:
    """A file that the person chose; the name's ending says what it is."""

    name: str
    bytes: int
    file: DataFile


@dataclass(frozen=True)
class Opening:
    """Everything that opening a source needs to know."""

    seed: int
    context: int
    micro_batches: int
    lanes: int
    tokenizer: Tokenizer
    retry: Retry


async def open_tokenizer(
    name: str = "",
    *,
    port: DataPort | None = None,
    hub: str = HUB_ADDRESS,
    file: DataFile | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Tokenizer:
    """The site's own tokenizer, that of a model repository ``owner/name`` of the Hub, or ``file``,
    a tokenizer.json that is then called ``name``.

    It lives in a Worker of its own unless ``port`` is given.  Raises DataError.
    """
    used = port or _new_port()
    try:
        if file is not None:
            return await load_tokenizer(used, name, file)
        if not name:
            return await load_tokenizer(used, TOKENIZER_NAME, DataFile(TOKENIZER_FILE))
        repo = parse_dataset(name).repo
        retry = Retry(used, attempts=OPENING_ATTEMPTS, on_wait=on_wait)
        remote = DataFile(tokenizer_address(hub, repo))
        what = f"the tokenizer of {repo}"
        return await retry.run(what, lambda: load_tokenizer(used, repo, remote))
    except BaseException:
        if port is None:
            used.close()
        raise


async def open_source(
    spec: str,
    *,
    seed: int,
    context: int,
    micro_batches: int = 1,
    lanes: int = 1,
    tokenizer: Tokenizer | None = None,
    file: OwnFile | None = None,
    hub: str = HUB_ADDRESS,
    shared: Shared | None = None,
    fallback: bool = True,
    on_wait: Callable[[str], None] | None = None,
) -> TokenSource:
    """A source by name: ``embedded``, ``fineweb-edu``, ``owner/name[/config[/split]][:column]`` or
    ``file`` together with ``file``.

    ``micro_batches`` is the most that a step has; they read from ``lanes`` (at most as many) in
    turn, and lanes share next to no row group.  ``shared`` is another member's
    ``source.shared()``.  ``on_wait`` is told in words what is being waited for.  With ``fallback``
    the embedded corpus takes over, with a notice, when the Hub cannot be reached.  Raises
    SettingsError for an unknown name and DataError when files are missing or damaged.
    """
    dataset = None if spec in (EMBEDDED, OWN_FILE) else parse_dataset(spec)
    if spec == OWN_FILE and file is None:
        raise DataError("No file was chosen.", do="Choose a text file.")
    used = tokenizer or await open_tokenizer()
    opening = Opening(
        seed=seed,
        context=context,
        micro_batches=micro_batches,
        lanes=min(lanes, micro_batches),
        tokenizer=used,
        retry=Retry(used.port, attempts=OPENING_ATTEMPTS, on_wait=on_wait),
    )
    try:
        if file is not None and spec == OWN_FILE:
            return await _open_own(file, opening)
        if dataset is None:
            return await _open_embedded(opening)
        return await _open_dataset(spec, dataset, opening, hub, shared, fallback)
    except BaseException:
        if tokenizer is None:
            used.port.close()
        raise


async def _open_embedded(opening: Opening, notice: str = "") -> WindowSource:
    train = await _read_embedded(opening.tokenizer, EMBEDDED_FILE)
    heldout = await _read_embedded(opening.tokenizer, EMBEDDED_HELDOUT_FILE)
    return _window_source(EMBEDDED, opening, train, heldout, notice)


async def _read_embedded(tokenizer: Tokenizer, address: str) -> TokenBlock:
    try:
        return await tokenizer.port.read_file(
            DataFile(address), "parquet", "text", tokenizer.end_of_text, MAX_EMBEDDED_BYTES
        )
    except PortFailure as cause:
        damaged = cause.kind == "damaged"
        raise DataError(
            f"The site's corpus {address} {'is damaged' if damaged else 'could not be loaded'}.",
            str(cause),
            "Load the page again; if that does not help, the site's copy is broken.",
        ) from cause


def _window_source(
    name: str, opening: Opening, train: TokenBlock, heldout: TokenBlock, notice: str = ""
) -> WindowSource:
    return WindowSource(
        name,
        opening.tokenizer,
        train,
        Heldout(heldout.tokens, opening.context, opening.tokenizer),
        seed=opening.seed,
        context=opening.context,
        micro_batches=opening.micro_batches,
        notice=notice,
    )


async def _open_own(own: OwnFile, opening: Opening) -> TokenSource:
    """A text in memory, or the row groups of a parquet file as they are needed."""
    kind = FILE_KINDS.get(own.name.rpartition(".")[2].lower())
    if kind is None:
        raise DataError(
            f"{own.name} is no kind of text that can be read here.",
            do="Choose a .txt, .md, .jsonl or .parquet file.",
        )
    if kind == "parquet":
        listed = Listing(DatasetSpec(own.name), (RemoteFile(own.name, own.bytes, ""),))
        return await _open_stream(OWN_FILE, opening, listed, [own.file], {}, 0)
    tokenizer = opening.tokenizer
    try:
        block = await tokenizer.port.read_file(
            own.file, kind, "", tokenizer.end_of_text, MAX_TEXT_BYTES
        )
    except PortFailure as cause:
        raise DataError(f"{own.name} cannot be used.", str(cause)) from cause
    count = len(block.tokens)
    held = count // OWN_HELDOUT_SHARE
    train = TokenBlock(block.tokens.part(0, count - held), block.documents, block.bytes)
    heldout = TokenBlock(block.tokens.part(count - held, count), 0, 0)
    return _window_source(own.name, opening, train, heldout)


async def _open_dataset(
    spec: str,
    dataset: DatasetSpec,
    opening: Opening,
    hub: str,
    shared: Shared | None,
    fallback: bool,
) -> TokenSource:
    try:
        return await _open_remote(dataset, opening, hub, shared)
    except PortFailure as failure:
        if not fallback or not (passes(failure) or failure.kind == "preflight"):
            raise
        notice = f"{failure} The embedded corpus is used instead of {spec}."
        return await _open_embedded(opening, notice)


async def _open_remote(
    dataset: DatasetSpec, opening: Opening, hub: str, shared: Shared | None
) -> StreamSource:
    if shared is None:
        listing = await list_files(opening.tokenizer.port, opening.retry, hub, dataset)
        return await _open_stream(dataset.name, opening, listing, remote_files(hub, listing), {}, 0)
    listing, told, rate = read_plan(shared, dataset)
    files = remote_files(hub, listing)
    return await _open_stream(dataset.name, opening, listing, files, told, rate)


async def _open_stream(
    name: str,
    opening: Opening,
    listing: Listing,
    files: list[DataFile],
    footers: dict[int, Footer],
    rate: int,
) -> StreamSource:
    """``rate`` is the tokens a kilobyte if they are known, else 0: then they are measured."""
    reader = DatasetReader(opening.tokenizer, opening.retry, files, listing, told=set(footers))
    preloaded: Preloaded = {}
    if not rate:
        rate, preloaded = await measure(
            reader,
            footers,
            seed=opening.seed,
            context=opening.context,
            lanes=opening.lanes,
        )
    facts = StreamFacts(
        seed=opening.seed,
        context=opening.context,
        micro_batches=opening.micro_batches,
        lanes=opening.lanes,
        tokens_per_kilobyte=rate,
    )
    opening.retry.attempts = None
    return StreamSource(name, reader, footers, facts, preloaded)


def _new_port() -> DataPort:
    from daisychain.platform.workers import WorkerPort

    return WorkerPort()
