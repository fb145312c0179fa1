"""Progress bars."""

from __future__ import annotations

from collections.abc import Iterator

from tqdm.auto import tqdm

from gspo_edu.config import TrainConfig
from gspo_edu.run_files import Record


def cold_start_bar(losses: Iterator[float], steps: int) -> Iterator[float]:
    """``losses`` with a bar that shows the latest one."""
    with tqdm(losses, total=steps, desc="cold start", unit="step", leave=False) as bar:
        for loss in bar:
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            yield loss


class TrainingBar:
    """A bar over the rollouts of a run, with reward and clip fraction."""

    def __init__(self, config: TrainConfig) -> None:
        self.bar = tqdm(
            total=config.rollouts, desc=f"{config.objective} seed {config.seed}", unit="rollout"
        )

    def show(self, records: list[Record]) -> None:
        """Advance by one rollout."""
        clip = sum(record["clip_fraction_seq"] for record in records) / len(records)
        self.bar.set_postfix(
            reward=f"{records[-1]['reward']:.3f}", clip=f"{clip:.3f}", refresh=False
        )
        self.bar.update()

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()
