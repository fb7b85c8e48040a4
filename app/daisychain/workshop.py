"""What a session offers besides training: texts from its model, and the model as a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from daisychain.data import Tokenizer
from daisychain.export.checkpoint import Checkpoint
from daisychain.export.kit import Check, KitParts, make_kit, read_narrow
from daisychain.generate import Choice, Sampling, generate
from daisychain.model.config import ModelConfig
from daisychain.players.player import Player
from daisychain.saving import facts_of, tokenizer_json
from daisychain.trainer import Trainer

Result = TypeVar("Result")

SAMPLE_PROMPT = "The old man looked at the sea and"
SAMPLE_TOKENS = 32
"""What a run writes now and then by itself: greedily, so that any two runs can be compared."""

CHECK_TOKENS = 12
"""Tokens by which a kit finds out that it computes as its maker did."""


@dataclass(frozen=True)
class TextRequest:
    """What to write: at most ``limit`` tokens after the prompt, up to the text ``stop`` if any."""

    prompt: str
    limit: int = 64
    sampling: Sampling = field(default_factory=Sampling)
    stop: str = ""


@dataclass(frozen=True)
class Piece:
    """One token: the characters that it completes, its probability, and the likeliest tokens."""

    text: str
    token: int
    probability: float
    likeliest: tuple[tuple[str, float], ...]


Tell = Callable[[Piece], bool]
"""Hears each piece as it comes; false ends the text."""


class Workshop(ABC):
    """A session's model in use.  All of it happens between two steps."""

    _tokenizer_json = b""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Raises DataError as long as there is none."""

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """The session's public state."""

    @abstractmethod
    async def between(self, action: Callable[[Trainer], Awaitable[Result]]) -> Result:
        """Does something with the device between two steps, the last update applied."""

    async def write(self, request: TextRequest, tell: Tell) -> None:
        """Writes a text; raises SettingsError or DeviceError."""
        prompt = [self.tokenizer.end_of_text, *await self.tokenizer.encode(request.prompt)]

        async def act(trainer: Trainer) -> None:
            await self._write(trainer, prompt, request, tell)

        await self.between(act)

    @abstractmethod
    async def checkpoint(self) -> Checkpoint:
        """The model, and all that its run needs to go on."""

    async def kit(self, bits: int, script: bytes) -> list[memoryview]:
        """The inference kit with weights of 16 or 8 bits, in parts."""
        prompt = [self.tokenizer.end_of_text, *await self.tokenizer.encode(SAMPLE_PROMPT)]

        async def act(trainer: Trainer) -> KitParts:
            config, player = trainer.model.config, trainer.player
            return KitParts(
                await read_narrow(player, trainer.model.program, config),
                bits,
                await self._tokenizer_content(),
                self.tokenizer.end_of_text,
                facts_of(self.state()),
                script,
                await make_check(player, config, prompt),
            )

        return make_kit(await self.between(act))

    async def _tokenizer_content(self) -> bytes:
        self._tokenizer_json = self._tokenizer_json or await tokenizer_json(self.tokenizer)
        return self._tokenizer_json

    async def _write(
        self, trainer: Trainer, prompt: list[int], request: TextRequest, tell: Tell
    ) -> None:
        tokenizer, config = self.tokenizer, trainer.model.config
        decoder, written = tokenizer.decoder(), ""
        choices = generate(
            trainer.player,
            config.context,
            config.vocabulary,
            prompt,
            request.limit,
            request.sampling,
        )
        async for choice in choices:
            if choice.token == tokenizer.end_of_text:
                break
            piece = _piece(tokenizer, choice, decoder.push(choice.token))
            written += piece.text
            if not tell(piece) or (request.stop and request.stop in written):
                return
        if rest := decoder.flush():
            tell(Piece(rest, tokenizer.end_of_text, 1.0, ()))

    async def _sample(self, trainer: Trainer) -> dict[str, Any]:
        """The log's record of a text after the fixed prompt."""
        request = TextRequest(SAMPLE_PROMPT, SAMPLE_TOKENS)
        prompt = [self.tokenizer.end_of_text, *await self.tokenizer.encode(request.prompt)]
        texts: list[str] = []

        def hear(piece: Piece) -> bool:
            texts.append(piece.text)
            return True

        await self._write(trainer, prompt, request, hear)
        return {"step": trainer.step, "prompt": request.prompt, "sample": "".join(texts)}


async def make_check(player: Player, config: ModelConfig, prompt: Sequence[int]) -> Check:
    """What a player with a decoding program writes; a kit must write the same."""
    choices = generate(player, config.context, config.vocabulary, prompt, CHECK_TOKENS, Sampling())
    return Check(prompt, [choice.token async for choice in choices])


def _piece(tokenizer: Tokenizer, choice: Choice, text: str) -> Piece:
    likeliest = tuple((token_name(tokenizer, token), p) for token, p in choice.likeliest)
    return Piece(text, choice.token, choice.probability, likeliest)


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """A token as a person may see it; one without text shows its name."""
    return tokenizer.token_bytes(token).decode("utf-8", "replace")
