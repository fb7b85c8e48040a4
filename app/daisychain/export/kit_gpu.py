"""What an inference kit needs to write on WebGPU: shaders and programs, for every browser.

The kit's page compares the GPU with its WebAssembly model before it uses it
(app/js/kit/gpu_model.js).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from daisychain.plan import Program
from daisychain.players.wasm_layout import Layout
from daisychain.players.webgpu import flatten, kernel_sources

VARIANTS = ("packed", "unpacked")
"""With the packed dot product where the browser has it, and without."""


def gpu_parts(program: Program, layout: Layout, filled: Mapping[str, int]) -> bytes:
    """JSON of ``GpuParts``; ``filled`` names the buffers with content and their sizes in bytes.

    A kernel's sources for the two variants stand side by side: where they are alike they pack well.
    """
    sources = [
        source
        for kernel in sorted(program.kernels())
        for variant in VARIANTS
        for source in kernel_sources(kernel, variant)
    ]
    parts = {
        "sources": sources,
        "programs": {variant: flatten(program, variant) for variant in VARIANTS},
        "copies": [(name, layout.buffers[name][0], size) for name, size in filled.items()],
    }
    return json.dumps(parts, separators=(",", ":")).encode()
