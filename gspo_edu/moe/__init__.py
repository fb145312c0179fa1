"""The tiny mixture-of-experts language model."""

from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import RouteTrace, drift, replay_gates

__all__ = ["ModelConfig", "RouteTrace", "TinyMoE", "drift", "replay_gates"]
