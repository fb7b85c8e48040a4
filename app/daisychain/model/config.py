"""The shape of a model, and its parameters: names, shapes, initial scales."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

from daisychain.errors import SettingsError
from daisychain.numbers.tables import square_root

VOCABULARY = 16512

RMS_EPSILON = 2.0**-20
"""The epsilon of RMSNorm (kernels.oracle.norm), for configuration files."""

ROPE_BASE = 10000.0


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-style model.  ``hidden`` is the SwiGLU width, ``context`` the tokens a sequence."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    context: int
    vocabulary: int = VOCABULARY
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "hidden", "context", "vocabulary"):
            if getattr(self, name) < 1:
                raise SettingsError(f"The model's {name} is {getattr(self, name)}; it must be 1+.")
        if self.width % self.heads or self.heads % self.kv_heads:
            raise SettingsError(
                f"A width of {self.width} cannot be divided among {self.heads} heads "
                f"({self.kv_heads} for keys and values)."
            )
        for name in ("width", "head_dim", "hidden", "context"):
            if getattr(self, name) % 8:
                raise SettingsError(
                    f"The model's {name} is {getattr(self, name)}; it must be a multiple of 8."
                )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def vocabulary_rows(self) -> int:
        """Rows of the embedding: the vocabulary padded to a multiple of 8."""
        return -(-self.vocabulary // 8) * 8


@dataclass(frozen=True)
class Parameter:
    """One weight tensor, [rows, cols] (norm weights have one row).

    ``deviation`` is the standard deviation of the initial values; None means all ones.  Names are
    those of the Hugging Face Llama layout.
    """

    name: str
    rows: int
    cols: int
    deviation: Fraction | None

    @property
    def count(self) -> int:
        return self.rows * self.cols

    @property
    def is_matrix(self) -> bool:
        return self.deviation is not None


EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def layer_name(layer: int, part: str) -> str:
    return f"model.layers.{layer}.{part}.weight"


def parameters(c: ModelConfig) -> tuple[Parameter, ...]:
    """All parameters in their canonical order (that of hashes, exchange and files)."""
    into = 1 / square_root(c.width)
    residual = 1 / square_root(2 * c.layers)
    out = [Parameter(EMBEDDING, c.vocabulary_rows, c.width, Fraction(1, 50))]
    for layer in range(c.layers):
        shapes = {
            "input_layernorm": (1, c.width, None),
            "self_attn.q_proj": (c.width, c.width, into),
            "self_attn.k_proj": (c.kv_width, c.width, into),
            "self_attn.v_proj": (c.kv_width, c.width, into),
            "self_attn.o_proj": (c.width, c.width, into * residual),
            "post_attention_layernorm": (1, c.width, None),
            "mlp.gate_proj": (c.hidden, c.width, into),
            "mlp.up_proj": (c.hidden, c.width, into),
            "mlp.down_proj": (c.width, c.hidden, residual / square_root(c.hidden)),
        }
        out += [Parameter(layer_name(layer, part), *shape) for part, shape in shapes.items()]
    out.append(Parameter(FINAL_NORM, 1, c.width, None))
    if not c.tied:
        out.append(Parameter(HEAD, c.vocabulary_rows, c.width, Fraction(1, 50)))
    return tuple(out)


STATE_BYTES = 12
"""Of the state of a parameter: a weight and the optimizer's two moments."""


def parameter_count(c: ModelConfig) -> int:
    return sum(p.count for p in parameters(c))


def binary32_bits(x: float) -> int:
    """The bit pattern of a number rounded to binary32."""
    return int.from_bytes(struct.pack("<f", x), "little")


def initial_scale_bits(deviation: Fraction) -> int:
    """binary32 factor for the centred sum of four 16-bit uniforms (kernel ``init_weights``).

    Its variance is 4 (2^32 - 1)/12.
    """
    return binary32_bits(float(deviation / square_root((2**32 - 1) // 3)))
