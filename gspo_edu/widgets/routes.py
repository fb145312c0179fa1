"""Routes: the experts of each token, layer by layer, as updates go on, with and without replay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import CLIP_RANGES, LessonWidget, check, check_clip_bound
from gspo_edu.widgets.route_record import shipped_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

KEYS = {"tokens", "layers", "top_k", "logits", "logp", "replayed_logits", "replayed_logp"}


class Routes(LessonWidget):
    """One answer's routes and ratios after each update, and what Routing Replay does to both.

    All arguments are traits: they follow the reader's hand, and setting one moves the widget.

    Args:
        record: from ``route_record``; the one that ships with the package unless given.
        update: how many updates after sampling, from 0 on; beyond the last it means the last.
        replay: compute with the experts that were chosen when the answer was sampled.
        token: the chosen token, counted from 1.
        layer: the chosen layer, the place in ``record["layers"]``, counted from 0.
        grpo_low, grpo_high: the clip range that ratios are compared with.

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
    """

    name = "routes"
    title = "Routes"
    _esm = module("routes")

    record = traitlets.Dict().tag(sync=True)
    update = traitlets.Int(1).tag(sync=True)
    replay = traitlets.Bool(False).tag(sync=True)
    token = traitlets.Int(1).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    grpo_low = traitlets.Float(CLIP_RANGES["grpo"][0]).tag(sync=True)
    grpo_high = traitlets.Float(CLIP_RANGES["grpo"][1]).tag(sync=True)

    def __init__(self, record: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(record=shipped_record() if record is None else record, **kwargs)
        if "token" not in kwargs and "layer" not in kwargs and self.flips():
            token, self.layer = self.flips()[0]
            self.token = token + 1

    @traitlets.validate("grpo_low", "grpo_high")
    def _check_range(self, proposal: dict[str, Any]) -> float:
        return check_clip_bound(self, proposal["trait"].name, proposal["value"])

    @traitlets.validate("update", "layer", "token")
    def _check_place(self, proposal: dict[str, Any]) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        least = int(name == "token")
        check(value >= least, self, name, value, f"{least} or more")
        return int(value)

    @traitlets.validate("record")
    def _check_record(self, proposal: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = proposal["value"]
        given = f"a dict with {', '.join(sorted(map(str, record))) or 'nothing'}"
        check(set(record) == KEYS, self, "record", given, "what route_record returns")
        count = len(record["logp"])
        fits = count >= 2 and len(record["logits"]) == count
        for name in ("replayed_logits", "replayed_logp"):
            fits = fits and len(record[name]) == count - 1
        rows = [*record["logits"], *record["logp"], *record["replayed_logits"]]
        fits = fits and all(len(row) == len(record["tokens"]) for row in rows)
        check(fits, self, "record", f"of {count} moments", "what route_record returns")
        return record

    def experts(self) -> Tensor:
        """(T, N, K) the experts that compute now, the largest logit first."""
        held = self.replay and self.moment() > 0
        return self._logits(0 if held else self.moment(), False).topk(self.record["top_k"]).indices

    def gates(self) -> Tensor:
        """(T, N, K) their gate weights, from the live router logits."""
        from gspo_edu.moe.routes import replay_gates

        return replay_gates(self._logits(self.moment(), self.replay), self.experts())

    def moment(self) -> int:
        """The update shown, within those there are."""
        return min(self.update, len(self.record["logp"]) - 1)

    def _logits(self, moment: int, replay: bool) -> Tensor:
        import torch

        rows = self.record["logits"][moment]
        if replay and moment:
            rows = self.record["replayed_logits"][moment - 1]
        return torch.tensor(rows, dtype=torch.float64)

    @property
    def ratios(self) -> list[float]:
        """Importance ratio of each token."""
        record, moment = self.record, self.moment()
        now = record["replayed_logp"][moment - 1] if self.replay and moment else None
        pairs = zip(now or record["logp"][moment], record["logp"][0], strict=True)
        return [math.exp(new - old) for new, old in pairs]

    @property
    def drift(self) -> float:
        """Share of expert slots whose expert is another than when the answer was sampled."""
        from gspo_edu.moe.routes import drift

        before = self._logits(0, False).topk(self.record["top_k"]).indices
        return float(drift(self.experts(), before))

    def flips(self) -> list[tuple[int, int]]:
        """Places (token, layer), both counted from 0, with an expert that was not there before."""
        before = self._logits(0, False).topk(self.record["top_k"]).indices.tolist()
        return [
            (t, n)
            for t, layers in enumerate(self.experts().tolist())
            for n, experts in enumerate(layers)
            if set(experts) - set(before[t][n])
        ]

    @property
    def outside(self) -> int:
        """Number of tokens whose ratio is beyond the range."""
        low, high = 1 - self.grpo_low, 1 + self.grpo_high
        return sum(not low <= ratio <= high for ratio in self.ratios)

    def words(self) -> str:
        count = len(self.record["tokens"])
        slots = count * len(self.record["layers"]) * self.record["top_k"]
        touched = len({token for token, _ in self.flips()})
        how = "with the old experts replayed" if self.replay else "with the router's own choice"
        token = min(self.token, count)
        return (
            f"One answer of {count} tokens after update {self.moment()} of "
            f"{len(self.record['logp']) - 1}, {how}: {round(self.drift * slots)} of {slots} expert "
            f"slots ({self.drift:.1%}) are new since sampling, in {touched} of {count} tokens. "
            f"{self.outside} of {count} ratios lie outside {1 - self.grpo_low:g} to "
            f"{1 + self.grpo_high:g}; that of token {token} is {self.ratios[token - 1]:.4g}."
        )

    def picture(self) -> Figure:
        from gspo_edu.widgets.route_picture import route_picture

        before = self._logits(0, False).topk(self.record["top_k"]).indices.tolist()
        wanted = self._logits(self.moment(), self.replay).topk(self.record["top_k"]).indices
        return route_picture(self, before, self.experts().tolist(), wanted.tolist())
