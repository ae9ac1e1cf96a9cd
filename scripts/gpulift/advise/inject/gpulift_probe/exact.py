"""A step in FP32, which tells how far the script's own is from it."""

from __future__ import annotations

import warnings

import torch

from .flags import _convolutions, _products
from .forward import _disabled
from .switch import Switch


class Exact(Switch):
    """Neither autocast nor TF32, and nothing that was compiled with them."""

    name = "FP32"

    def flip(self) -> None:
        """See base."""
        with warnings.catch_warnings():  # some versions ask for the newer settings
            warnings.simplefilter("ignore")
            _products().allow(False, self._undo)
            _convolutions().allow(False, self._undo)
        self.put(torch.autocast, "__enter__", _disabled(torch.autocast.__enter__))
        if self.seen.compiled and hasattr(torch.compiler, "set_stance"):
            self._undo.enter_context(torch.compiler.set_stance("force_eager"))
