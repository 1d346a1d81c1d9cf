"""Weights: how the reference's are made unlike freshly initialised ones, and how a candidate receives them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from cudal1_ray.evaluation.inside.memory import lengthen_layers
from cudal1_ray.evaluation.inside.places import tensors_in

# Attributes of a module that hold its parts.
_PARTS = ("_parameters", "_buffers", "_modules")


def randomise_weights(model: torch.nn.Module, noise: float, generator: torch.Generator) -> None:
    """Give values to weights that initialisation leaves constant, in place, so that an identity at init shows.

    Parameters c that are constant, or that have one value in a quarter of their places (a unit matrix), become
    c * (1 + noise * n) + noise / 2 * m, with n and m standard normal. Running means, and buffers that are zero
    everywhere, become noise * n; running variances, and buffers that are one everywhere, uniform in [0.5, 1.5]. In
    recurrent layers a quarter of the units keep their state. Other parameters that are random already stay as they are,
    and so do buffers that are no part of the state (`persistent=False`), which no candidate receives.
    """
    state = model.state_dict()

    def normal(tensor: torch.Tensor) -> torch.Tensor:
        return torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.device)

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.numel() and _constant(parameter):
                value = parameter.float() if parameter.element_size() == 1 else parameter  # eight bits have no products
                drawn = value * (1 + noise * normal(parameter)) + 0.5 * noise * normal(parameter)
                parameter.copy_(drawn)
        for name, buffer in model.named_buffers():
            if not buffer.is_floating_point() or name not in state:
                continue
            if name.endswith("running_mean") or _is_all(buffer, 0.0):
                buffer.copy_(noise * normal(buffer))
            elif name.endswith("running_var") or _is_all(buffer, 1.0):
                uniform = torch.rand(buffer.shape, generator=generator, dtype=torch.float32)
                buffer.copy_(0.5 + uniform)
        lengthen_layers(model, generator)


def _is_all(tensor: torch.Tensor, value: float) -> bool:
    """Return whether a tensor is `value` everywhere; a single number may be anything, such as a count or a scale."""
    return tensor.numel() > 1 and bool((tensor == value).all())


def _constant(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is constant, as far as a thousand of its elements, evenly spread, show."""
    flat = tensor.reshape(-1)
    sample = flat[torch.linspace(0, flat.numel() - 1, min(flat.numel(), 1021), dtype=torch.float64).long()]
    return (
        int(torch.unique(sample.float(), return_counts=True)[1].max()) >= max(2, 0.25 * len(sample)) or len(flat) == 1
    )


@contextmanager
def weights_at_once(kind: Any, value_of: Mapping[str, Callable[[], torch.Tensor]]) -> Iterator[set[str]]:
    """Give a new model of `kind`, within the context, the reference's weights as soon as it has a place for them, so
    that what its constructor folds, packs or captures of them is right. Yield the names of the entries given out, which
    the model may have dropped since. `value_of`: makes the reference's entry of that name.
    """
    served: set[str] = set()
    if not issubclass(kind, torch.nn.Module):
        yield served
        return
    assign, own = kind.__setattr__, "__setattr__" in vars(kind)

    def give(model: Any, name: str, value: Any) -> None:
        assign(model, name, value)
        places = {name: value} if isinstance(value, torch.nn.Parameter) else {}
        if isinstance(value, torch.nn.Module):
            state = torch.nn.Module.state_dict(value, keep_vars=True)
            places = {f"{name}.{part}": place for part, place in state.items() if isinstance(place, torch.Tensor)}
        with torch.no_grad():
            for full, place in places.items():
                if full in value_of and not is_lazy(place) and place.shape == (weight := value_of[full]()).shape:
                    place.copy_(weight)
                    served.add(full)

    kind.__setattr__ = give
    try:
        yield served
    finally:
        if own:
            kind.__setattr__ = assign
        else:
            del kind.__setattr__


def load_state(model: Any, entries: list[tuple[str, torch.Tensor]], served: Collection[str] = ()) -> list[str]:
    """Copy the reference's weights into a candidate; return names of the reference's entries that found no place.

    By name first; the rest is matched in order among entries of the same shape and dtype, so a candidate may hold a
    bare Parameter where the reference holds a module. If a place was missed, the outputs are wrong, which the verdict
    reports. The candidate has used an entry that was `served` in its constructor and that it holds no more. Places of a
    lazy module get the shape of the reference's entry of their name.
    """
    if not isinstance(model, torch.nn.Module):
        return [name for name, _ in entries]
    own = dict(torch.nn.Module.state_dict(model, keep_vars=True))
    waiting: list[tuple[str, torch.Tensor]] = []
    with torch.no_grad():
        for name, value in entries:
            place = own.get(name)
            if is_lazy(place):
                place.materialize(value.shape)
            if place is not None and place.shape == value.shape:
                place.copy_(value)
                del own[name]
            elif name not in served:
                waiting.append((name, value))
        own = {name: place for name, place in own.items() if not is_lazy(place)}
        unmatched = []
        for name, value in waiting:
            place_name = next((n for n, t in own.items() if t.shape == value.shape and t.dtype == value.dtype), None)
            if place_name is None:
                unmatched.append(name)
            else:
                own.pop(place_name).copy_(value)
    return unmatched


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """Return a deep copy of a model. Functions that its modules keep, with parts of the model in their closures, refer
    to the copy's parts: `copy.deepcopy` leaves functions as they are.
    """
    memo: dict[int, Any] = {}
    try:
        result = copy.deepcopy(model, memo)
    except Exception:  # a setting that cannot be copied, such as a dictionary with attributes, is shared
        values = [value for module in model.modules() for name, value in vars(module).items() if name not in _PARTS]
        memo = {id(value): value for value in values if not tensors_in(value) and not _can_be_copied(value)}
        result = copy.deepcopy(model, memo)
    for module, other in zip(model.modules(), result.modules(), strict=True):
        for name, value in vars(module).items():
            if isinstance(value, FunctionType):
                setattr(other, name, _rebound(value, memo))
    return result


def _can_be_copied(value: Any) -> bool:
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True


def _rebound(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    def instead(value: Any) -> Any:
        return _rebound(value, memo) if isinstance(value, FunctionType) else memo.get(id(value), value)

    try:
        cells = tuple(CellType(instead(cell.cell_contents)) for cell in function.__closure__ or ())
    except (ValueError, RecursionError):  # an empty cell, or functions that hold each other
        return function
    rebound = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    rebound.__kwdefaults__ = function.__kwdefaults__
    return rebound


def weights_nbytes(model: torch.nn.Module) -> int:
    return sum(value.nbytes for value in (*model.parameters(), *model.buffers()) if not is_lazy(value))


def has_lazy_weights(model: torch.nn.Module) -> bool:
    """Return whether a first call gives weights their shapes (`torch.nn.LazyLinear`)."""
    return any(map(is_lazy, (*model.parameters(), *model.buffers())))


def detach(model: torch.nn.Module) -> None:
    """Detach tensors computed of parameters, such as those of `torch.nn.utils.weight_norm`: they cannot be copied."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                setattr(module, name, value.detach())


def loose_tensors(model: torch.nn.Module) -> bool:
    """Return whether the model has tensors that `Module.to` does not move."""
    registered = ("_parameters", "_buffers")
    return any(
        tensors_in(value)
        for module in model.modules()
        for name, value in vars(module).items()
        if name not in registered
    )
