"""Hidden states of a decoder, read and patched at chosen layers and positions while it runs.

Layer 0 is what enters the first decoder layer: the embedding, scaled and with learned positions where the architecture
has such. Layer l, from 1 to the number of decoder layers, is what decoder layer l hands on. The last one is therefore
taken *before* the final norm, unlike the last entry of transformers' `output_hidden_states`.

A position counts a row's own tokens from 0. Padding on either side and tokens that a cache already holds change
nothing: a call's attention mask says which tokens it holds, and a call without a mask holds a token in every column.
Under generation with a cache the prompt is one call and every new token another one. A place is read or patched in the
call that holds its token; through the cache a patched token reaches the later ones as any other token does.

Shape legend: B rows, T tokens of a call, D hidden, L layers asked for, P positions of one row, N positions of all rows.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fairwitness.errors import ItemError, ModelError
from fairwitness.lm.decoding import token_numbers
from fairwitness.lm.inspect import layer_names, num_decoder_layers
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import batches_by_length, pad_right

Change = Tensor | Callable[[Tensor], Tensor]
"""States (D,) for every position or (P, D) for each; or a function from the states there are to as many."""


@dataclass(frozen=True, eq=False)
class Patch:
    """A change of one row's hidden states at one layer.

    Attributes:
        row: Row of the call, from 0.
        layer: Layer, 0 for the embedding.
        change: What is put there, of any numeric type, on any device. A function is given the states of those of the
            positions that the call holds, in the order of `positions`, in the model's type.
        add: Whether the change is added to what is there (in the wider of both types) instead of replacing it.
    """

    row: int
    layer: int
    positions: Sequence[int]
    change: Change
    add: bool = False


class Reading:
    """Owns the states that were read: those asked for and no others, on the model's device, in its type."""

    def __init__(self, lm: LanguageModel, layers: Sequence[int], positions: Sequence[Sequence[int]]) -> None:
        self._layers, self._counts = tuple(layers), [len(wanted) for wanted in positions]
        hidden_size = int(lm.model.config.get_text_config(decoder=True).hidden_size)
        self._shape_LND = (len(layers), sum(self._counts), hidden_size)
        self._kept_LND: Tensor | None = None
        pairs = [(row, position) for row, wanted in enumerate(positions) for position in wanted]
        self.places = _Places(pairs if layers else [])

    def states(self, *, as_is: bool = False) -> list[Tensor]:
        """What was read so far, one tensor (L, P, D) a row, layers and positions in the order asked for.

        The tensors are detached copies, and ordinary ones even if the model ran in inference mode: a probe can be
        trained on them. Of several calls that held a position the last one counts.

        Args:
            as_is: In the model's numeric type, on its device; by default in float32 on the CPU.

        Raises:
            ItemError: No call has held one of the positions.
        """
        self.places.require_all()
        with torch.inference_mode(False):
            kept_LND = torch.empty(self._shape_LND) if self._kept_LND is None else self._kept_LND
            kept_LND = kept_LND if as_is else kept_LND.float().cpu()
            return [part_LPD.clone() for part_LPD in kept_LND.split(self._counts, dim=1)]

    def keep(self, layer: int, hidden_BTD: Tensor) -> None:
        """Takes the chosen states of one layer from those of a call."""
        which, row, col = self.places.here
        if layer not in self._layers or not len(which):
            return
        found_ND = hidden_BTD.detach()[row, col]
        if self._kept_LND is None:
            with torch.inference_mode(False):
                self._kept_LND = torch.empty(self._shape_LND, dtype=found_ND.dtype, device=found_ND.device)
        for index in [index for index, wanted in enumerate(self._layers) if wanted == layer]:
            self._kept_LND[index, which] = found_ND.to(self._kept_LND.device)


@contextmanager
def hidden_states(
    lm: LanguageModel,
    *,
    layers: Sequence[int] = (),
    positions: Sequence[Sequence[int]] = (),
    patches: Sequence[Patch] = (),
) -> Iterator[Reading]:
    """While entered, calls of `lm.model` are read and patched; no hook stays behind, whatever happens.

    Rows are those of the call: a helper that sorts or splits rows must be told not to, as by
    `generate_greedy(..., preserve_order=True)`. At one layer patches come first, in the order given, then the reading,
    which sees what the model goes on with. Contexts can be nested; the outer one comes first, so that where both touch
    one place the inner patch wins and only the inner reading sees it. A gradient runs through patches, never through
    what was read. Where modules run at some positions only (`logits_at(..., last=...)`), the last layer's states at
    the others mean nothing.

    Args:
        lm: The model, in any numeric type.
        layers: Layers to read, 0 for the embedding.
        positions: For each row the positions to read. Further rows are not read.
        patches: What to change.

    Yields:
        What is read; see `Reading.states`.

    Raises:
        ModelError: The model has no such layer (none is counted from the end), or a call's mask is not one of rows.
        ItemError: A position is negative (a row does not say where it ends); or, when the context is left without
            another error, no call has held one of the positions to read or to patch.
        ValueError: A call lacks one of the rows, or a change has another shape than the states it is for.
        RuntimeError: A part of the model was called alone: only the whole call tells the positions.
    """
    visited = sorted({*layers, *(patch.layer for patch in patches)})
    _check(lm, visited, [*enumerate(positions), *((patch.row, patch.positions) for patch in patches)])
    blocks = [lm.model.get_submodule(name) for name in layer_names(lm.ff2_names)]
    reading = Reading(lm, layers, positions)
    calls = _Calls(lm.model, reading, patches)
    with ExitStack() as stack:
        stack.callback(lm.model.register_forward_pre_hook(calls.begin, with_kwargs=True).remove)
        stack.callback(lm.model.register_forward_hook(calls.end, always_call=True).remove)
        for layer in visited:
            stack.callback(_hook(blocks, layer, partial(calls.visit, layer)).remove)
        yield reading
    for places in calls.all_places:
        places.require_all()


@torch.no_grad()
def read_hidden_states(
    lm: LanguageModel,
    texts: Sequence[Sequence[int]],
    layers: Sequence[int],
    positions: Sequence[Sequence[int]],
    *,
    max_tokens: int,
) -> list[Tensor]:
    """Hidden states of whole texts, one pass a text: float32 tensors (L, P, D) on the CPU, in the order of the texts.

    Args:
        lm: The model.
        texts: Token ids of each text.
        layers: Layers to read, 0 for the embedding.
        positions: The positions of each text; a text without any is not run.
        max_tokens: Most padded tokens of one pass; a longer text is run alone.

    Raises:
        ModelError: The model has no such layer.
        ItemError: A text has no such position.
        ValueError: There are not as many lists of positions as texts.
    """
    _check(lm, layers, list(enumerate(positions)))
    for number, (ids, wanted) in enumerate(zip(texts, positions, strict=True)):
        if max(wanted, default=-1) >= len(ids):
            raise ItemError(f"position {max(wanted)} of text {number} was asked for; it has {len(ids)} tokens")
    result = Reading(lm, layers, [()] * len(texts)).states()
    asked = [number for number, wanted in enumerate(positions) if wanted]
    for batch in batches_by_length([len(texts[number]) for number in asked], max_tokens=max_tokens):
        numbers = [asked[index] for index in batch]
        ids_BT = pad_right([texts[number] for number in numbers], lm.device)
        with hidden_states(lm, layers=layers, positions=[positions[number] for number in numbers]) as reading:
            lm.model(input_ids=ids_BT, use_cache=False, logits_to_keep=1)
        for number, states_LPD in zip(numbers, reading.states(), strict=True):
            result[number] = states_LPD
    return result


class _Places:
    """Tokens that are read or patched together, by row and position, and where the call under way holds them."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = pairs
        self._row_N, self._position_N = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(dim=1)
        self._met_N = torch.zeros(len(pairs), dtype=torch.bool)
        self._held: dict[int, set[int]] = defaultdict(set)
        self.here = (self._row_N[:0],) * 3
        """Of those that the call holds: which of the N, row, column. On the CPU, as every device takes such indices."""

    def find(self, number_BT: Tensor) -> None:
        """Takes a call, given by the number of the token in each column, -1 for padding."""
        if self._pairs and int(self._row_N.max()) >= len(number_BT):
            raise ValueError(f"row {int(self._row_N.max())} was asked for; the call has {len(number_BT)} rows")
        which, col = (number_BT[self._row_N] == self._position_N[:, None]).nonzero(as_tuple=True)
        self.here = (which, self._row_N[which], col)
        self._met_N[which] = True
        for row in {row for row, _ in self._pairs}:
            self._held[row].update(number_BT[row][number_BT[row] >= 0].tolist())

    def require_all(self) -> None:
        """Raises an ItemError unless every place was in some call."""
        missed = (~self._met_N).nonzero().flatten().tolist()
        if missed:
            row, position = self._pairs[missed[0]]
            held = self._held[row]
            found = f"its positions {min(held)} to {max(held)}" if held else "none of its tokens"
            raise ItemError(f"position {position} of row {row} was asked for; the calls held {found}")


class _Calls:
    """Owns what one context does at each call of the model: finds the places, patches them, reads them."""

    def __init__(self, model: nn.Module, reading: Reading, patches: Sequence[Patch]) -> None:
        self._signature = inspect.signature(model.forward)
        self._under_way = False
        self._reading = reading
        self._patches: dict[int, list[tuple[Patch, _Places]]] = defaultdict(list)
        for patch in patches:
            places = _Places([(patch.row, position) for position in patch.positions])
            self._patches[patch.layer].append((patch, places))
        self.all_places = [reading.places, *(places for pairs in self._patches.values() for _, places in pairs)]

    def begin(self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Hook before the model: finds the places."""
        given = self._signature.bind_partial(*args, **kwargs).arguments
        fed, cache = given.get("input_ids"), given.get("cache")
        fed = given["inputs_embeds"] if fed is None else fed
        num_cached = 0 if cache is None else int(cache.get_seq_length())
        number_BT = token_numbers(given.get("attention_mask"), *fed.shape[:2], num_cached=num_cached)
        for places in self.all_places:
            places.find(number_BT)
        self._under_way = True

    def end(self, *_: object) -> None:
        """Hook after the model, also when it failed."""
        self._under_way = False

    def visit(self, layer: int, hidden_BTD: Tensor) -> Tensor:
        """Patches, then reads, the states of one layer; gives what the model goes on with."""
        if not self._under_way:
            raise RuntimeError("hidden_states follows calls of lm.model; a part of it was called alone")
        due = [(patch, places) for patch, places in self._patches[layer] if len(places.here[0])]
        if due:
            hidden_BTD = hidden_BTD.clone()
        for patch, places in due:
            which, row, col = places.here
            hidden_BTD[row, col] = _changed(hidden_BTD[row, col], which, patch)
        self._reading.keep(layer, hidden_BTD)
        return hidden_BTD


def _changed(states_PD: Tensor, which: Tensor, patch: Patch) -> Tensor:
    """What a patch makes of the states at those of its positions that the call holds."""
    if isinstance(patch.change, Tensor):
        wanted, shape = (len(patch.positions), states_PD.shape[-1]), tuple(patch.change.shape)
        if shape not in (wanted, wanted[1:]):
            raise ValueError(f"a patch of layer {patch.layer} has shape {shape}; {wanted[1:]} or {wanted} is needed")
        value_PD = patch.change.expand(wanted)[which.to(patch.change.device)]
    else:
        value_PD = patch.change(states_PD)
        if value_PD.shape != states_PD.shape:
            shapes = f"{tuple(states_PD.shape)} into {tuple(value_PD.shape)}"
            raise ValueError(f"a patch of layer {patch.layer} turned states {shapes}; the shape must stay")
    value_PD = value_PD.to(states_PD.device)
    return (states_PD + value_PD if patch.add else value_PD).to(states_PD.dtype)


def _hook(blocks: Sequence[nn.Module], layer: int, visit: Callable[[Tensor], Tensor]) -> RemovableHandle:
    """Registers what is done with the states of a layer."""

    def at_input(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (visit(args[0]), *args[1:])

    def at_output(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        return (visit(output[0]), *output[1:]) if isinstance(output, tuple) else visit(output)

    if layer == 0:
        return blocks[0].register_forward_pre_hook(at_input)
    return blocks[layer - 1].register_forward_hook(at_output)


def _check(lm: LanguageModel, layers: Sequence[int], rows: Sequence[tuple[int, Sequence[int]]]) -> None:
    last = num_decoder_layers(lm.model)
    for layer in layers:
        if not 0 <= layer <= last:
            raise ModelError(f"layer {layer} was asked for; {lm.facts.name} has layers 0 (the embedding) to {last}")
    for row, wanted in rows:
        if row < 0:
            raise ValueError(f"row {row} was asked for; rows count from 0")
        if min(wanted, default=0) < 0:
            raise ItemError(f"position {min(wanted)} of row {row} was asked for; positions count from 0 at its start")
