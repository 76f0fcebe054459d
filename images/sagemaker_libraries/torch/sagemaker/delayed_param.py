"""Delayed initialization: parameters on a meta device that get their values when FSDP shards them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.sagemaker.logger import get_logger
from torch.sagemaker.utils.module_utils import empty_module_params, move_buffers_to_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class DelayedParamIniter:
    """Source of the functions with which FSDP initializes a model's parameters."""

    def __init__(
        self,
        model: nn.Module,
        init_method_using_config: Callable[[nn.Module], None] | None = None,
        verbose: bool = False,
    ) -> None:
        self._model = model
        self._init = init_method_using_config or self._by_the_module
        self._num_expected = sum(each.numel() for each in model.parameters())
        self._num_inited = 0
        self._is_verbose = verbose

    def get_param_init_fn(self) -> Callable[[nn.Module], None]:
        """Return the function for FSDP's argument `param_init_fn`, which initializes one module."""

        def init(module: nn.Module) -> None:
            self._init(module)
            self.count_num_params(module)

        return init

    def get_post_param_init_fn(self) -> Callable[[nn.Module], None]:
        """Return SMP's `post_param_init_fn`, which ties weights again."""

        def tie(_: nn.Module) -> None:
            if hasattr(self._model, "tie_weights"):
                self._model.tie_weights()

        return tie

    def count_num_params(self, module: nn.Module, *_: nn.Parameter) -> None:
        """Count the module's own parameters as initialized."""
        self._num_inited += sum(each.numel() for each in module.parameters(recurse=False))
        if self._is_verbose:
            get_logger().info(
                "%d of %d parameters initialized", self._num_inited, self._num_expected
            )

    @contextmanager
    def validate_params_and_buffers_inited(self, enabled: bool = True) -> Iterator[None]:
        """Check on exit that all parameters are initialized and that no tensor is on a meta device.

        Raises:
            AssertionError: A parameter is not initialized, or a tensor is on a meta device.
        """
        yield
        if not enabled:
            return
        left = [
            name
            for name, each in (*self._model.named_parameters(), *self._model.named_buffers())
            if each.is_meta
        ]
        assert not left, f"tensors are still on a meta device: {', '.join(left)}"
        assert self._num_inited >= self._num_expected, (
            f"only {self._num_inited} of {self._num_expected} parameters are initialized"
        )

    def _by_the_module(self, module: nn.Module) -> None:
        """Initialize as Transformers does: by the model's `_init_weights`, or by the module's `reset_parameters`."""
        device = (
            torch.device("cuda", torch.cuda.current_device())
            if torch.cuda.is_available()
            else "cpu"
        )
        empty_module_params(module, device=torch.device(device))
        move_buffers_to_device(module, device=torch.device(device))
        if hasattr(self._model, "_init_weights"):
            self._model._init_weights(module)
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()
