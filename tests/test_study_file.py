"""Study files: the grid that they describe, and what they are told when they are wrong."""

import itertools

import pytest

from gspo_edu.config import TrainConfig
from gspo_edu.initial import check_start
from gspo_edu.moe import ModelConfig, TinyMoE
from gspo_edu.study_cells import reference_group
from gspo_edu.study_file import STUDIES, read_study, study_names
from gspo_edu.tasks.base import VOCAB_SIZE

ARMS = """
[[arm]]
name = "GRPO"
objective = "grpo"

[[arm]]
name = "GSPO"
objective = "gspo"
lr = 5e-4
"""


@pytest.fixture
def read(tmp_path):
    """Reads a study file of the given text."""

    def reading(text):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return read_study(path)

    return reading


def test_lists_make_the_grid_and_an_arm_has_its_own_values(read):
    study = read("seed = [0, 1]\nlr = [1e-3, 2e-3]\ntask_size = [8, 12]\nrollouts = 2" + ARMS)
    grpo = [cell for cell in study.cells if cell.arm == "GRPO"]
    wanted = list(itertools.product([1e-3, 2e-3], [8, 12], [0, 1]))
    assert [(c.config().lr, c.config().task_size, c.seed) for c in grpo] == wanted
    assert grpo[0].setting == (("lr", 1e-3), ("task_size", 8))
    gspo = [cell.config() for cell in study.cells if cell.arm == "GSPO"]
    assert gspo == [
        TrainConfig("gspo", seed, 2, task_size=size, lr=5e-4)
        for size, seed in itertools.product([8, 12], [0, 1])
    ]
    assert study.pairs == (("GSPO", "GRPO"),)
    assert (study.name, study.source) == ("mine", "mine.toml")


def test_objectives_alone_are_arms(read):
    study = read('objective = ["grpo", "gspo", "seq_unnormalised"]\nseed = [3]')
    assert study.arms == ["GRPO", "GSPO", "product, no root"]
    assert [cell.config().objective for cell in study.cells] == ["grpo", "gspo", "seq_unnormalised"]
    assert [cell.setting for cell in study.cells] == [()] * 3
    (cell,) = read("rollouts = 1").cells
    assert cell.config() == TrainConfig(rollouts=1)


RULED = '[tuning]\nseed = [9]\nlr = [1e-3]\nmatch = "GRPO"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rolouts = 3", "arm 'GSPO': there is no field 'rolouts'; .* lists all"),
        ("rollouts = 2.5", "arm 'GSPO': rollouts is 2.5; expected int"),
        ("rollouts = [2, -1]", "arm 'GSPO': rollouts is -1; expected 0 or more"),
        ("seed = []", "arm 'GSPO': seed is an empty list; expected one or more"),
        ("seed = [1, 2, 1]", "seed names 1 twice"),
        ("clip_low = [0.1, 1.5]", "clip range .* is not usable"),
        ('objective = ["grpo", "gpso"]', "objective is 'gpso'; expected one of ppo"),
        ('lr = "tunde"', 'lr is \'tunde\'; expected a number, "tuned", "matched" or'),
        ('lr = "tuned"', "tuning.seed is missing"),
        ('lr = "tuned"\n[tuning]\nseed = [9]', "tuning.lr is missing"),
        (
            'lr = "tuned"\nseed = [8, 9]\n' + RULED,
            "tuning.seed names 9, which is a seed of the res",
        ),
        ('lr = "matched"\n' + RULED, "tuning.match is 'GRPO'; expected the name of another arm"),
        ("[tuning]\nseeds = [1]", "tuning has no field 'seeds'; it has seed, lr, match"),
        ("[tuning]\nlr = [1e-3, 'x']", "tuning.lr is 'x'; expected float"),
        ("[tuning]\noutside = 1.0", "tuning.outside is 1.0; expected between 0 and 1"),
        ("tuning = 3", "tuning is 3; expected a table"),
        ("[arm]\nname = 'x'", r"arm is no list of tables; expected a line \[\[arm\]\]"),
        ("[[arm]]\nobjective = 'grpo'", "the name of arm 1 is None; expected a text"),
        ("objective = 'grpo'" + ARMS, r"objective stands beside \[\[arm\]\]"),
        (ARMS + ARMS, "two arms are called 'GRPO'"),
        ("pairs = [['GSPO', 'PPO']]" + ARMS, "pairs names 'PPO'; expected one of GRPO, GSPO"),
        ("pairs = [['GSPO']]" + ARMS, "pairs names .'GSPO'.; expected the names of two different"),
        (ARMS + "replay = 'r4'", "arm 'GSPO': replay is 'r4'; expected one of none, r2, r3"),
        (ARMS + "cap = 3.0", "arm 'GSPO': cap is 3.0, but gspo has no such setting"),
        (ARMS + "clip_from = 'mean'", "arm 'GSPO': clip_from is 'mean'; expected \"quantiles\""),
        (ARMS + "clip_from = 'quantiles'\nclip_low = 0.1", "stands beside clip_low or clip_high"),
        ("clip_from = 'quantiles'" + ARMS, "arm 'GRPO': clip_from .* expected the objective gspo"),
        ("mini_batches = 1" + ARMS.replace("5e-4", '"matched"') + RULED, "one update per rollout"),
        ("mini_batches = 1" + ARMS + 'clip_from = "quantiles"\n' + RULED, "one update per rollout"),
        ("lr = [1, 2]\nseed = 0.5 0.6", "is not valid TOML"),
        (ARMS.replace("5e-4", '"as GSPO"') + RULED, "lr is 'as GSPO'; expected the name of anot"),
        (ARMS.replace("5e-4", '"as GRPO"') + RULED, "no rule finds that arm's rate; expected the"),
        (ARMS + "starts_from = 'GRPP'", "starts_from is 'GRPP'; expected the name of another arm"),
        (ARMS + "starts_from = 'GSPO'", "starts_from is 'GSPO'; expected the name of another arm"),
        (ARMS + "starts_from = 3", "starts_from is 3; expected an arm's name"),
        (ARMS + "starts_from = 'GRPO'\ninit = 'cold'", "expected an arm's name, and no init"),
        (ARMS + "starts_from = 'GRPO'\nseed = 7", "arm 'GRPO' has no run with seed 7"),
        (
            'lr = "tuned"' + ARMS + "starts_from = 'GRPO'\n" + RULED,
            "starts_from is 'GRPO', which follows a rule itself",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file(read, text, message):
    with pytest.raises(ValueError, match=rf"mine\.toml:? .*{message}"):
        read(text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.toml does not exist"):
        read_study(tmp_path / "none.toml")


def test_what_a_matched_arm_matches_must_be_one_setting(read):
    text = ARMS.replace("5e-4", '"matched"') + RULED
    study = read("seed = [0, 1]\ntask_size = [8, 12]" + text)
    cell = next(cell for cell in study.cells if cell.arm == "GSPO" and cell.setting[0][1] == 12)
    assert [(c.arm, c.config().task_size, c.seed) for c in reference_group(study, cell)] == [
        ("GRPO", 12, 0),
        ("GRPO", 12, 1),
    ]
    with pytest.raises(ValueError, match="2 settings of 'GRPO' fit to the only setting"):
        read("lr = [1e-3, 2e-3]" + text)


@pytest.mark.parametrize("name", study_names())
def test_the_shipped_studies_can_be_read(name):
    study = read_study(name)
    assert study.source == name
    assert study.text.startswith("# ")
    for config in {cell.config(lr=1e-3, seed=0) for cell in study.cells}:
        check_start(config)
    seeds = {cell.seed for cell in study.cells}
    assert len(seeds) >= (5 if name == "quick" else 8)
    for group in {cell.group for cell in study.cells}:
        assert {cell.seed for cell in study.cells if cell.group == group} == seeds


def test_the_shipped_studies_are_those_that_the_course_talks_of():
    assert {
        "calm",
        "compute",
        "stormy",
        "dense",
        "step_size",
        "answer_length",
        "experts",
        "depth",
    } <= {*study_names()}
    assert all(path.read_text(encoding="utf-8").isascii() for path in STUDIES.glob("*.toml"))


def test_calm_and_stormy_have_the_same_arms_at_their_own_and_at_equal_rates():
    calm, stormy = read_study("calm"), read_study("stormy")
    assert calm.arms == stormy.arms
    assert len(calm.arms) == 10
    for study in (calm, stormy):
        own = {cell.arm for cell in study.cells if cell.lr_from == "tuned"}
        equal = {(cell.arm, cell.config().lr) for cell in study.cells if not cell.lr_from}
        assert own == {*study.arms}
        assert len(equal) == len(study.arms)
        assert len({lr for _, lr in equal}) == 1


def parameters(config):
    dense = {"dense": True} if config.dense else {}
    experts = {"num_experts": config.experts} if config.experts else {}
    width = {"expert_width": config.expert_width} if config.expert_width else {}
    shape = ModelConfig(VOCAB_SIZE, **dense, **experts, **width)
    model = TinyMoE(shape)
    routers = shape.num_experts * shape.width * len(shape.routed_layers)
    spare = shape.num_experts - shape.top_k if not config.dense else 0
    one_expert = 3 * shape.width * shape.expert_width * shape.num_layers
    total = sum(p.numel() for p in model.parameters())
    return total - routers, total - routers - spare * one_expert


def test_the_dense_twins_have_the_parameters_that_their_names_say():
    arms = {cell.arm: cell.config(lr=1e-3) for cell in read_study("dense").cells}
    total, active = parameters(arms["GRPO, experts"])
    assert active < total / 5
    assert parameters(arms["GRPO, dense as active"]) == (active, active)
    assert parameters(arms["GRPO, dense as total"]) == (total, total)
