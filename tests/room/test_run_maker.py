"""What a room's founder gives out, and what a newcomer makes of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from daisychain.building import exchange_bytes
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.layout import model_layout
from daisychain.errors import DeviceError
from daisychain.model.config import ModelConfig
from daisychain.numbers import tables
from daisychain.room.run_maker import PageRunMaker, room_settings, settings_text
from daisychain.settings import EXCHANGES, resolve


def nothing(*_: Any) -> Any:
    raise AssertionError("nothing is opened here")


@pytest.mark.parametrize("mode", EXCHANGES)
def test_the_newcomer_exchanges_as_the_room_does(mode: str) -> None:
    settings = resolve({"exchange": mode, "name": "mine", "player": "wasm"})
    text = settings_text(settings, 16_512)
    maker = PageRunMaker("auto", nothing, nothing, nothing, nothing, nothing, nothing)
    assert maker.exchange(text) is Exchange(mode)
    agreed = room_settings(settings, 16_512, None)
    assert agreed.exchange is Exchange(mode)
    assert agreed.text == text
    assert "mine" not in text


def test_the_largest_table_is_there_before_a_player_asks() -> None:
    tables.rope_table(8, 8)
    settings = resolve({})
    missing: list[None] = []

    async def open_player(*_: Any) -> Any:
        missing.extend(tables.rope_work(settings.context, settings.width // settings.heads))
        raise DeviceError("There is no device here.")

    async def open_source(*_: Any) -> Any:
        return SimpleNamespace(tokenizer=SimpleNamespace(size=61), close=list)

    def told(_: str) -> None:
        pass

    maker = PageRunMaker("auto", open_player, open_source, nothing, told, told, told)
    with pytest.raises(DeviceError):
        asyncio.run(maker.prepare(settings))
    assert missing == []


def test_bytes_of_a_step_between_two_devices() -> None:
    config = ModelConfig(64, 2, 4, 4, 192, 64)
    parameters = model_layout(config).elements
    a_parameter = {mode: exchange_bytes(config, Exchange(mode)) / parameters for mode in EXCHANGES}
    assert 1.0 < a_parameter["int8"] < 1.05
    assert 0.75 < a_parameter["int4"] < 0.80
    assert 2.0 < a_parameter["int16"] < 2.05
