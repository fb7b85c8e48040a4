"""DaisyChain: train a language model together, in the browser, on exact integer arithmetic."""

__version__ = "0.1.0"
