"""Record and replay the routes of a mixture of experts of transformers, whose code stays as it is.

    with recorded_routes(model) as recorder:
        model(input_ids, attention_mask=mask)
    routes = recorder.routes

    with replayed_routes(model, routes):
        model(input_ids, attention_mask=mask).logits.sum().backward()

Routers of transformers return their logits, the gates and the chosen experts. Hooks on them read
the experts, or put given ones in their place with gates from the live logits; ``hf_routers`` has
the rule of each architecture, and refuses others.
"""

from __future__ import annotations

import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gspo_edu.moe.hf_routers import GATES, RoutedModel, routed_model
from gspo_edu.moe.routes import checked_rows

# Decoders that replay at this moment.
REPLAYING: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@dataclass(frozen=True)
class SequenceRoutes:
    """The expert choices of one forward pass over rows of tokens.

    Attributes:
        experts: (B, T, N, K) int16, -1 in padding. Position t holds the experts that token t
            itself went through, while its successor was predicted.
        layers: the N layer numbers, so that dense layers in between cannot shift the meaning.
    """

    experts: Tensor
    layers: tuple[int, ...]

    def rows(self, index: Tensor) -> SequenceRoutes:
        """Routes of the rows ``index``, for a mini-batch."""
        return replace(self, experts=self.experts[index])


@dataclass(frozen=True)
class Pass:
    """What a forward pass of the decoder was given.

    Attributes:
        inside: (B, T) bool, false in padding.
        cached: number of positions that an earlier pass has read.
        again: layers that activation checkpointing will compute again in the backward pass.
    """

    inside: Tensor
    cached: int
    again: tuple[int, ...]


def pass_of(routed: RoutedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pass:
    """Read the arguments of the decoder's forward.

    Raises:
        ValueError: if the attention mask does not say which tokens are padding.
    """
    bound = inspect.signature(routed.decoder.forward).bind_partial(*args).arguments
    given = {**bound, **kwargs}
    tokens = given.get("input_ids")
    like = given["inputs_embeds"][..., 0] if tokens is None else tokens
    mask = given.get("attention_mask")
    if mask is None:
        inside = torch.ones_like(like, dtype=torch.bool)
    elif isinstance(mask, Tensor) and mask.dim() == 2:
        inside = mask[:, -like.shape[1] :].bool()
    else:
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"attention_mask is {shape}; expected (rows, positions), 1 on tokens and 0 in padding: "
            "routes are -1 in padding."
        )
    cache = given["cache"] if given.get("cache") is not None else given.get("past_key_values")
    return Pass(
        inside=inside,
        cached=0 if cache is None else int(cache.get_seq_length()),
        again=routed.checkpointed_layers() if torch.is_grad_enabled() else (),
    )


class Watch:
    """Hooks that know which forward pass a router's call belongs to.

    A router that runs outside the decoder's forward is computed again by activation checkpointing.
    """

    def __init__(self, routed: RoutedModel) -> None:
        self.routed = routed
        self.running: Pass | None = None
        self.ran: dict[int, Tensor] = {}

    def begin(self, given: Pass) -> None:
        """A forward pass starts."""

    def router(self, layer: int, output: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """A router has run; what it returns may be replaced."""

    def end(self, given: Pass) -> None:
        """A forward pass is over; ``ran`` holds the experts of each layer, (B * T, K)."""

    @contextmanager
    def attached(self, *, first: bool) -> Iterator[None]:
        """Hooks on decoder and routers while the block runs, before all others if ``first``."""
        decoder = self.routed.decoder

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.running, self.ran = None, {}
            given = pass_of(self.routed, args, kwargs)
            self.begin(given)
            self.running = given

        def after(module: nn.Module, args: Any, output: Any) -> None:
            given, self.running = self.running, None
            if given is None or output is None:  # it failed
                return
            for layer in self.routed.routed_layers:
                if layer not in self.ran:
                    raise RuntimeError(
                        f"the router of layer {layer} did not run: the layer computes it "
                        "elsewhere, as a fused kernel does. Load the model without kernels."
                    )
            self.end(given)

        def chosen(layer: int) -> Callable[..., Any]:
            def hook(module: nn.Module, args: Any, output: Any) -> Any:
                changed = self.router(layer, output)
                self.ran[layer] = (output if changed is None else changed)[2].detach()
                return changed

            return hook

        handles = [
            decoder.register_forward_pre_hook(before, with_kwargs=True, prepend=first),
            decoder.register_forward_hook(after, always_call=True),
        ]
        handles += [
            router.register_forward_hook(chosen(layer), prepend=first)
            for layer, router in self.routed.routers.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class RouteRecorder(Watch):
    """What ``recorded_routes`` hands out.

    Attributes:
        passes: routes of each forward pass so far. Passes that go on from a cache, as in
            ``generate``, lengthen the one before; the last sampled token never runs, so its
            position is missing.
    """

    def __init__(self, routed: RoutedModel) -> None:
        super().__init__(routed)
        self.passes: list[SequenceRoutes] = []

    @property
    def routes(self) -> SequenceRoutes:
        """Routes of the only forward pass; ValueError if there were none, or several."""
        if len(self.passes) != 1:
            raise ValueError(
                f"{len(self.passes)} forward passes were recorded; expected one. Several are in "
                "`passes`."
            )
        return self.passes[0]

    def end(self, given: Pass) -> None:
        """See ``Watch``."""
        chosen = torch.stack(list(map(self.ran.__getitem__, self.routed.routed_layers)), dim=1)
        experts = chosen.to(torch.int16).unflatten(0, given.inside.shape)
        experts = experts.where(given.inside[..., None, None], -1)
        if given.cached:
            before = self.passes.pop().experts if self.passes else experts[:, :0]
            if before.shape[:2] != (len(experts), given.cached):
                raise ValueError(
                    f"a forward pass went on from {given.cached} cached positions of "
                    f"{len(experts)} rows, but {before.shape[1]} positions of {len(before)} rows "
                    "were recorded before it; begin to record before the prompts are read."
                )
            experts = torch.cat([before, experts], dim=1)
        self.passes.append(SequenceRoutes(experts, self.routed.routed_layers))


class RouteReplayer(Watch):
    """Puts the experts of ``routes`` in the place of the routers' own choice."""

    def __init__(self, routed: RoutedModel, routes: SequenceRoutes) -> None:
        super().__init__(routed)
        self.routes = routes
        self.fixed: Tensor | None = None
        self.to_repeat, self.repeated = Counter[int](), Counter[int]()

    def begin(self, given: Pass) -> None:
        """See ``Watch``. Raises ValueError if the routes do not fit this pass."""
        if given.cached:
            raise ValueError(
                f"this pass goes on from {given.cached} cached positions; replay needs whole rows."
            )
        experts = self.routes.experts.to(given.inside.device)
        fixed = checked_rows(experts, self.routes.layers, self.routed, given.inside, "row")
        if self.to_repeat and self.fixed is not None and not torch.equal(fixed, self.fixed):
            raise ValueError(
                "with activation checkpointing, all passes in one replayed_routes need the same "
                "attention_mask: their layers are computed again."
            )
        self.fixed = fixed
        self.to_repeat.update(given.again)

    def router(self, layer: int, output: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """See ``Watch``."""
        if self.fixed is None:
            return None
        if self.running is None:
            self.repeated[layer] += 1
        logits, _, live = output
        fixed = self.fixed[:, :, self.routes.layers.index(layer)].flatten(0, 1).to(live.dtype)
        experts = torch.where(fixed >= 0, fixed, live)
        router = self.routed.routers[layer]
        return logits, GATES[type(router).__name__](router, logits, experts), experts

    def check_repeated(self) -> None:
        """Raise RuntimeError if a backward pass that computes layers again is still to come."""
        if not self.to_repeat <= self.repeated:
            raise RuntimeError(
                "activation checkpointing computes the layers again in the backward pass, which "
                "would then choose experts anew: call backward inside `with replayed_routes(…)` "
                "(and a forward pass without one under torch.no_grad()), or call "
                "model.activation_checkpointing_disable()."
            )


@contextmanager
def recorded_routes(model: nn.Module) -> Iterator[RouteRecorder]:
    """Record the experts of all forward passes in the block; see ``RouteRecorder``.

    Layers that activation checkpointing computes again are recorded once. Beam search, which
    moves rows in its cache, is not followed.

    Raises:
        ValueError: if the model has a router that is not known, or none.
    """
    recorder = RouteRecorder(routed_model(model))
    with recorder.attached(first=False):
        yield recorder


@contextmanager
def replayed_routes(model: nn.Module, routes: SequenceRoutes) -> Iterator[None]:
    """Let all forward passes in the block use the experts of ``routes``, with live gates.

    Routing Replay as in arXiv 2507.18071, section 5.3: which experts run is fixed, how much each
    counts is not, so the router still learns. Positions with -1 (padding, and the last token that
    an engine never ran) choose live. For the policy's passes only: keep a reference out of it.

    Args:
        model: a mixture of experts of transformers.
        routes: of these rows and positions; T - 1 positions will do, see ``RouteTrace.check``.

    Raises:
        ValueError: if the model has a router that is not known, or none, or replays already; and
            from a forward pass, if the routes do not fit it, naming layer and position.
        RuntimeError: if a backward pass with activation checkpointing is left for after the block.
    """
    replayer = RouteReplayer(routed_model(model), routes)
    decoder = replayer.routed.decoder
    if decoder in REPLAYING:
        raise ValueError(f"{type(decoder).__name__} replays already; end that block first.")
    REPLAYING.add(decoder)
    try:
        with replayer.attached(first=True):
            yield
            replayer.check_repeated()
    finally:
        REPLAYING.discard(decoder)
