"""Saving a run: what goes into its checkpoint, and the automatic saves in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from daisychain.data import Tokenizer, TokenSource
from daisychain.data.spec import EMBEDDED
from daisychain.errors import DaisyChainError, DataError
from daisychain.export.checkpoint import MAX_TOKENIZER_BYTES, Checkpoint, Facts, Run
from daisychain.model.config import ModelConfig
from daisychain.platform import device_name, fetch_bytes
from daisychain.platform.files import blob_bytes
from daisychain.trainer import Snapshot, Trainer

Keep = Callable[[Checkpoint], Awaitable[None]]
"""Keeps a checkpoint on this device; raises DataError when it cannot."""

STATE_FACTS = (
    "parameters",
    "step",
    "steps",
    "tokens",
    "loss",
    "heldout_nats",
    "heldout_bits_per_byte",
    "weights_hash",
)


def facts_of(state: Mapping[str, Any]) -> Facts:
    """What a session's state tells people about its model."""
    facts: dict[str, str | int | float] = {n: state[n] for n in STATE_FACTS if state.get(n)}
    members = [str(member.get("name")) for member in state.get("members") or ()]
    data = str((state.get("data") or {}).get("name", ""))
    facts["data"] = "embedded corpus" if data == EMBEDDED else data
    facts["devices"] = ", ".join(members) or f"{device_name()} ({state.get('player')})"
    facts["saved"] = datetime.now(UTC).isoformat(timespec="seconds")
    return facts


async def tokenizer_json(tokenizer: Tokenizer) -> bytes:
    """The content of the tokenizer's file."""
    file = tokenizer.file
    if file.handle is not None:
        return await blob_bytes(file.handle, MAX_TOKENIZER_BYTES)
    return await fetch_bytes(file.url, MAX_TOKENIZER_BYTES)


def separator_of(tokenizer: Tokenizer) -> tuple[int, str]:
    """The token between documents and its name."""
    token = tokenizer.end_of_text
    return token, next(name for name, i in tokenizer.table.added.items() if i == token)


def vocabulary_for(tokens: int, resumed: Checkpoint | None) -> int:
    """The vocabulary of a model: the tokenizer's tokens, or a checkpoint's with its spare rows.

    Raises DataError when the tokenizer does not fit the checkpoint.
    """
    if resumed is None:
        return tokens
    if tokens > resumed.config.vocabulary:
        raise DataError(
            f"The tokenizer has {tokens:,} tokens, the model's vocabulary only "
            f"{resumed.config.vocabulary:,}.",
            do="Choose a checkpoint with its own tokenizer.",
        )
    return resumed.config.vocabulary


async def restore_run(
    trainer: Trainer, source: TokenSource, resumed: Checkpoint, snapshot: Snapshot
) -> str:
    """Puts a checkpoint's state into the trainer; the hash of the weights.

    Raises DataError unless model, data and weights are those of the checkpoint's run.
    """
    check_model(resumed, trainer.model.config)
    if resumed.run:
        source.restore(dict(resumed.run.cursor))
    await trainer.restore(snapshot)
    weights_hash = await trainer.flush()
    if resumed.run:
        check_weights(resumed.run, weights_hash)
    return weights_hash


def heldout_of(resumed: Checkpoint) -> dict[str, float]:
    """The last held-out measurement of a checkpoint's run."""
    names = ("heldout_nats", "heldout_bits_per_byte")
    return {n: v for n in names if isinstance(v := resumed.facts.get(n), float)}


def check_model(resumed: Checkpoint, config: ModelConfig) -> None:
    """Raises DataError unless the checkpoint is of this model."""
    if resumed.config != config:
        raise DataError(
            "The checkpoint is of another model than the settings describe.",
            do="Choose the settings of the checkpoint.",
        )


def check_weights(run: Run, weights_hash: str) -> None:
    """Raises DataError unless the weights are those of the run."""
    if weights_hash != run.weights_hash:
        raise DataError(
            "The checkpoint's weights do not have the hash that its run had.",
            "It was put together from parts of different runs.",
            "Choose another file, or an older save.",
        )


class AutoSave:
    """Keeps checkpoints now and then, one at a time, while the run goes on.

    What goes wrong is told once and stops nothing; ``kept`` is called after each save.
    """

    def __init__(
        self,
        keep: Keep | None,
        every: int,
        tell: Callable[[str], None],
        kept: Callable[[], None],
    ) -> None:
        self._keep, self._every, self._tell, self._kept = keep, every, tell, kept
        self._task: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self.saved_step = 0

    def is_due(self, step: int, always: bool = False) -> bool:
        """Whether the run should be saved at this step; ``always`` at a pause and at the end."""
        if self._keep is None or not self._every or step == self.saved_step:
            return False
        return always or (step % self._every == 0 and not self.is_busy)

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def save(self, checkpoint: Checkpoint) -> None:
        """Begins to keep a checkpoint, after the one that is being kept."""
        await self.finish()
        self._task = asyncio.ensure_future(self._work(checkpoint))

    async def finish(self) -> None:
        """Waits until everything is kept."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _work(self, checkpoint: Checkpoint) -> None:
        run = checkpoint.run
        if self._keep is None or run is None:
            return
        try:
            await self._keep(checkpoint)
            self.saved_step = run.step
            self._kept()
        except DaisyChainError as error:
            if error.what not in self._told:
                self._told.add(error.what)
                self._tell(str(error))
