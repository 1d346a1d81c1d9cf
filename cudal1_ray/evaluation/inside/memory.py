"""Recurrences: weights with which a state is kept from a sequence's first step to its last.

With initial weights, gates forget within some tens of steps, and only the last steps of a sequence would count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

import torch

_GATED = (torch.nn.GRU, torch.nn.LSTM, torch.nn.GRUCell, torch.nn.LSTMCell)
_UNGATED = (torch.nn.RNN, torch.nn.RNNCell)
# Share of the units that keep their state.
_REMEMBER = 0.25
# Largest bias of the gates that keep a state; they keep up to its sigmoid from step to step.
_LONGEST = 8.0
# Factor of the weights that bring new values to units without gates, which keep all of their state.
_NEW_SHARE = 0.1
# Fewest elements of a vector that may be a gate's bias, or a state's decay.
_FEWEST_UNITS = 8


def lengthen_layers(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Make a quarter of the units of PyTorch's own recurrent layers keep their state, in place."""
    for module in model.modules():
        if isinstance(module, (*_GATED, *_UNGATED)):
            _lengthen(module, generator)


def _lengthen(module: torch.nn.Module, generator: torch.Generator) -> None:
    size = module.hidden_size
    chosen, by = torch.rand(2, size, generator=generator, dtype=torch.float32)
    chosen = chosen < _REMEMBER
    for name, parameter in module.named_parameters(recurse=False):
        keep = chosen.to(parameter.device)
        if isinstance(module, _GATED):
            if name.startswith("bias_ih"):  # in both kinds the second gate, all of one size, decides what is kept
                parameter[size : 2 * size] += (keep * _LONGEST * by.to(parameter.device)).to(parameter)
        elif name.startswith("weight_hh"):
            parameter[keep] = 0.0
            parameter[keep, keep] = 1.0
        else:
            parameter[keep] *= _NEW_SHARE


def lengthen_written_out(model: torch.nn.Module, generator: torch.Generator, hold: float) -> None:
    """Change the weights of a written-out recurrence, in place, so that its state lasts. Their names do not show which
    ones are gates or carry the state, so all are changed. Recurrent layers are left: see `lengthen_layers`.

    A quarter of the rows of each matrix that has no more rows than columns becomes `hold` times one element, from the
    front or from the end, where a state may follow the new input: with 2 a hyperbolic tangent never leaves the side on
    which it began, and a sum overflows. The same rows of other matrices, and of vectors, get a tenth of their weight. A
    quarter of the other elements of vectors moves by up to 8, half of these upwards.
    """
    units: dict[int, torch.Tensor] = {}

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float32)

    with torch.no_grad():
        modules = (module for module in model.modules() if not isinstance(module, (*_GATED, *_UNGATED)))
        for parameter in (parameter for module in modules for parameter in module.parameters(recurse=False)):
            if not parameter.is_floating_point() or parameter.dim() not in (1, 2) or len(parameter) < _FEWEST_UNITS:
                continue
            size = len(parameter)
            if size not in units:
                units[size] = torch.nonzero(drawn(size) < _REMEMBER).flatten()
            rows = units[size].to(parameter.device)
            if parameter.dim() == 1:
                picked, by, up = drawn(3, size)
                moved = (picked < _REMEMBER) * torch.where(up < 0.5, 1.0, -1.0) * _LONGEST * by
                moved[units[size]] = 0.0
                parameter += moved.to(parameter)
            if parameter.dim() == 1 or size > parameter.shape[1]:
                parameter[rows] *= _NEW_SHARE
            else:
                parameter[rows] = 0.0
                parameter[rows, torch.where(rows % 2 == 0, rows, parameter.shape[1] - size + rows)] = hold


def writes_recurrence(source: str) -> bool:
    """Return whether a method of the problem goes through a sequence step by step, each step using the one before. A
    loop over the model's own layers does not count.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    methods = (
        method
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
    )
    loops = (node for method in methods for node in ast.walk(method) if isinstance(node, ast.For))
    return any(_takes_steps(loop) and _carries(loop) for loop in loops)


def _names(nodes: Iterable[ast.AST], use: type[ast.expr_context]) -> set[str]:
    """Return the names that are read (`ast.Load`) or given a value (`ast.Store`) anywhere in `nodes`."""
    every = (node for start in nodes for node in ast.walk(start))
    return {node.id for node in every if isinstance(node, ast.Name) and isinstance(node.ctx, use)}


def _takes_steps(loop: ast.For) -> bool:
    """Return whether a loop iterates over a tensor's parts, or indexes a value by the loop's own variable."""
    called = {node.attr for node in ast.walk(loop.iter) if isinstance(node, ast.Attribute)}
    return bool(called & {"unbind", "split", "chunk"}) or any(
        isinstance(node, ast.Subscript)
        and not _models_own(node.value)
        and _names([loop.target], ast.Store) & _names([node.slice], ast.Load)
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _models_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _carries(loop: ast.For) -> bool:
    """Return whether the body reads a name before it assigns it."""
    assigned, stored = _names([loop.target], ast.Store), _names(loop.body, ast.Store)
    for statement in loop.body:
        read = _names([statement], ast.Load)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            read.add(statement.target.id)
        if (read & stored) - assigned:
            return True
        assigned |= _names([statement], ast.Store)
    return False
