"""The Hugging Face layout of a Llama model: config.json, tokenizer files, model.safetensors.

What we write opens with ``transformers.AutoModelForCausalLM``.  What others wrote is taken when our
kernels compute that very model, and refused in one sentence when they do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daisychain.errors import DataError, SettingsError
from daisychain.export.json_files import read_object, whole, write_object
from daisychain.export.lanes import from_bfloat16, from_binary16, is_finite, to_bfloat16
from daisychain.export.safetensors import Tensor, TensorFile
from daisychain.model.config import (
    EMBEDDING,
    HEAD,
    RMS_EPSILON,
    ROPE_BASE,
    ModelConfig,
    Parameter,
    parameters,
)
from daisychain.settings import MAX_PARAMETERS, RANGES

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
WEIGHTS_FILE = "model.safetensors"
SHARDS_FILE = "model.safetensors.index.json"

MAX_VOCABULARY = 1 << 18
MAX_EPSILON = 1e-5 * (1 + 1e-6)
"""Llama's usual epsilon; ours is 2^-20, and beside mean squares near 1 the two differ by 1e-5."""

FLOAT_TYPES = ("F32", "BF16", "F16")
_IGNORED_ENDING = ".rotary_emb.inv_freq"
"""A constant that old versions of transformers stored with the weights."""


@dataclass(frozen=True)
class ForeignConfig:
    """A model's shape as its config.json says, and what a person should know about it."""

    config: ModelConfig
    notices: tuple[str, ...]


def config_files(config: ModelConfig, separator: int, separator_name: str) -> dict[str, bytes]:
    """config.json, generation_config.json and tokenizer_config.json.

    ``separator`` is the token before each document, which also ends a text.
    """
    tokens = {"bos_token_id": separator, "eos_token_id": separator}
    model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        **tokens,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.width,
        "initializer_range": 0.02,
        "intermediate_size": config.hidden,
        "max_position_embeddings": config.context,
        "mlp_bias": False,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "rms_norm_eps": RMS_EPSILON,
        "rope_theta": ROPE_BASE,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": config.vocabulary,
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": separator_name,
        "eos_token": separator_name,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.context,
    }
    return {
        CONFIG_FILE: write_object(model),
        GENERATION_FILE: write_object({**tokens, "do_sample": False}),
        TOKENIZER_CONFIG_FILE: write_object(tokenizer),
    }


def read_config(data: bytes | memoryview) -> ForeignConfig:
    """The shape of the model that a config.json describes; raises DataError for what is not ours.

    The context is at most what a run may have; it may be made shorter still.
    """
    values = read_object(data, CONFIG_FILE)
    _check_kind(values)
    heads = _size(values, "num_attention_heads", "heads")
    given = {
        "width": _size(values, "hidden_size", "width"),
        "layers": _size(values, "num_hidden_layers", "layers"),
        "heads": heads,
        "kv_heads": _size(values, "num_key_value_heads", "kv_heads", heads),
        "hidden": _size(values, "intermediate_size", "hidden"),
    }
    vocabulary = whole(values.get("vocab_size"), 1, MAX_VOCABULARY)
    positions = whole(values.get("max_position_embeddings"), RANGES["context"].least, 1 << 24)
    if vocabulary is None or positions is None:
        raise _unfit(f"its vocabulary or its context is not given, or over {MAX_VOCABULARY:,}")
    context = min(positions // 8 * 8, RANGES["context"].most)
    tied = values.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise _unfit("tie_word_embeddings is neither true nor false")
    try:
        config = ModelConfig(**given, context=context, vocabulary=vocabulary, tied=tied)
    except SettingsError as cause:
        raise _unfit(str(cause).rstrip(".")) from cause
    if values.get("head_dim") not in (None, config.head_dim):
        raise _unfit(f"its heads are not {config.head_dim} wide")
    count = sum(p.count for p in parameters(config))
    if count > MAX_PARAMETERS:
        raise _unfit(f"it has {count:,} parameters, {MAX_PARAMETERS:,} are possible")
    return ForeignConfig(config, _notices(values))


def _unfit(reason: str) -> DataError:
    return DataError(
        f"This model cannot be used: {reason}.",
        "The kernels compute Llama models of certain shapes and no others.",
        "Choose a checkpoint of DaisyChain or a Llama model that fits.",
    )


def _check_kind(values: Mapping[str, Any]) -> None:
    """Everything but the sizes must be what the kernels compute."""
    kind = values.get("model_type")
    if kind != "llama":
        raise _unfit(f"its architecture is {str(kind)[:40]!r}, not 'llama'")
    if values.get("hidden_act", "silu") != "silu":
        raise _unfit(f"its activation is {str(values['hidden_act'])[:40]!r}, not 'silu'")
    for name in ("attention_bias", "mlp_bias", "quantization_config"):
        if values.get(name):
            raise _unfit(f"it has {name}")
    rope = values.get("rope_parameters") or {}
    scaling = values.get("rope_scaling")
    if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default" or scaling:
        raise _unfit("it scales its rotary positions")
    base = values.get("rope_theta", rope.get("rope_theta", ROPE_BASE))
    if base != ROPE_BASE:
        raise _unfit(f"the base of its rotary positions is {str(base)[:20]}, not {ROPE_BASE:g}")
    epsilon = values.get("rms_norm_eps", RMS_EPSILON)
    if not isinstance(epsilon, float) or not 0 < epsilon <= MAX_EPSILON:
        raise _unfit(f"its rms_norm_eps is {str(epsilon)[:20]}; at most 1e-5 is possible")


def _size(values: Mapping[str, Any], key: str, name: str, default: int | None = None) -> int:
    """One of its sizes, within the limits of the setting ``name``."""
    value = values.get(key)
    value = default if value is None else value
    if type(value) is not int or value not in RANGES[name]:
        raise _unfit(f"its {key} is {str(value)[:20]}, not {RANGES[name]}")
    return value


def _notices(values: Mapping[str, Any]) -> tuple[str, ...]:
    epsilon = values.get("rms_norm_eps", RMS_EPSILON)
    if epsilon == RMS_EPSILON:
        return ()
    return (
        f"The model's rms_norm_eps is {epsilon:g}; the kernels use {RMS_EPSILON:.3g}, which "
        "changes its logits a little.",
    )


def model_tensors(
    config: ModelConfig, weights: Mapping[str, memoryview], dtype: str = "F32"
) -> dict[str, Tensor]:
    """The tensors of model.safetensors from binary32 weights by parameter name.

    Rows that only pad the vocabulary are cut off.  ``dtype`` is F32 or BF16.
    """
    tensors = {}
    for p in parameters(config):
        data = weights[p.name][: 4 * _rows_in_file(config, p) * p.cols]
        if dtype == "BF16":
            data = memoryview(to_bfloat16(data))
        tensors[p.name] = Tensor(dtype, _shape_in_file(config, p), data)
    return tensors


def read_weights(config: ModelConfig, file: TensorFile) -> dict[str, memoryview]:
    """binary32 weights by parameter name, the vocabulary padded with zeros.

    Raises DataError when a tensor is missing, superfluous, of another shape or type, or not finite.
    """
    wanted = parameters(config)
    names = {p.name for p in wanted} | ({HEAD} if config.tied else set())
    odd = [n for n in file.tensors if n not in names and not n.endswith(_IGNORED_ENDING)]
    if odd:
        raise _unfit(f"it has the tensor {odd[0][:80]!r}, which such a model does not have")
    out = {}
    for p in wanted:
        tensor = file.tensors.get(p.name)
        if tensor is None:
            raise _unfit(f"the tensor {p.name!r} is missing")
        shape = _shape_in_file(config, p)
        if tensor.shape != shape:
            raise _unfit(f"the tensor {p.name!r} has the shape {tensor.shape}, not {shape}")
        data = as_binary32(p.name, tensor)
        if len(data) < 4 * p.count:
            data = memoryview(bytes(data) + bytes(4 * p.count - len(data)))
        out[p.name] = data
    return out


def as_binary32(name: str, tensor: Tensor) -> memoryview:
    """A tensor's numbers as binary32; raises DataError for other types and for NaN or infinity."""
    if tensor.dtype not in FLOAT_TYPES:
        raise _unfit(f"the tensor {name!r} is of the type {tensor.dtype}")
    data = tensor.data
    if tensor.dtype == "BF16":
        data = memoryview(from_bfloat16(data))
    if tensor.dtype == "F16":
        data = memoryview(from_binary16(data))
    if not is_finite(data):
        raise DataError(
            f"The tensor {name!r} holds numbers that are not finite.",
            "Such a model computes nothing of use.",
            "Choose another file.",
        )
    return data


def _rows_in_file(config: ModelConfig, p: Parameter) -> int:
    return config.vocabulary if p.name in (EMBEDDING, HEAD) else p.rows


def _shape_in_file(config: ModelConfig, p: Parameter) -> tuple[int, ...]:
    return (_rows_in_file(config, p), p.cols) if p.is_matrix else (p.cols,)
