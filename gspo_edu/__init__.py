"""gspo_edu: reinforcement learning of language models, from PPO's clipping to GRPO and GSPO.

The package follows one answer's journey, one module per station: `moe` (the tiny policy),
`tasks` (prompts and verifier), `sampler`, `batch`, `advantages`, `ratios`, `objectives`,
`trainer`, `metrics`. Importing `gspo_edu` alone loads none of them.
"""

__version__ = "0.1.0"
