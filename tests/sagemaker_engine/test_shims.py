"""Which of SageMaker's own libraries an image shows, and what `torch.sagemaker` makes of its parameters."""

from __future__ import annotations

import json
import sys

import pytest

from sagemaker_engine.images.sagemaker_libraries import (
    PACKAGES,
    SMDDP,
    SMP,
    lay_out_shims,
    packages_folder,
    wanted_shims,
)

SMDDP_ON = {"sagemaker_distributed_dataparallel_enabled": "true"}


@pytest.mark.parametrize(
    ("family", "hyperparameters", "expected"),
    [
        ("smdistributed-modelparallel", {}, (SMP, SMDDP)),
        ("pytorch-training", SMDDP_ON, (SMDDP,)),
        ("huggingface-pytorch-training", SMDDP_ON, (SMDDP,)),
        ("pytorch-training", dict.fromkeys(SMDDP_ON, "True"), (SMDDP,)),
        ("pytorch-training", {}, ()),
        ("pytorch-training", {"sagemaker_distributed_dataparallel_enabled": "false"}, ()),
        ("tensorflow-training", SMDDP_ON, ()),
    ],
)
def test_an_image_shows_what_it_has_on_aws(family, hyperparameters, expected):
    assert wanted_shims(family, hyperparameters) == expected


def test_libraries_are_laid_out_beside_the_environments_own(tmp_path):
    folder = lay_out_shims((SMP, SMDDP), tmp_path / "shims")

    assert (folder / "torch/sagemaker/__init__.py").is_file()
    assert not (folder / "torch/__init__.py").exists()  # it is torch's own that is seen
    assert (folder / "smdistributed/dataparallel/torch/torch_smddp/__init__.py").is_file()
    assert not list(folder.rglob("__pycache__"))


def test_libraries_lie_where_torch_does(tmp_path):
    bare, full = tmp_path / "bare", tmp_path / "full"
    site = full / "lib/python3.12/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").touch()

    assert packages_folder((bare, full)) == site
    assert packages_folder((bare,)) is None


@pytest.fixture
def sagemaker(monkeypatch):
    """Return `torch.sagemaker`, which an instance sees as a folder of torch's."""
    import torch

    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(PACKAGES / "torch")])
    import torch.sagemaker

    yield torch.sagemaker
    del torch.sagemaker
    for name in [name for name in sys.modules if name.startswith("torch.sagemaker")]:
        del sys.modules[name]


@pytest.mark.torch
def test_parameters_are_read_from_the_job_or_the_script(sagemaker, monkeypatch, tmp_path):
    from torch.sagemaker._initialization import read_config

    given = {"hybrid_shard_degree": 2, "random_seed": 7}
    (tmp_path / "smp.json").write_text(json.dumps(given))
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", json.dumps(given))

    expected = read_config(given)
    assert (expected["hybrid_shard_degree"], expected["random_seed"]) == (2, 7)
    assert expected["tensor_parallel_degree"] == 1
    assert read_config(None) == expected
    assert read_config(str(tmp_path / "smp.json")) == expected
    assert not sagemaker.is_initialized()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"partitions": 2}, "torch.sagemaker has no parameter partitions"),
        ({"context_parallel_degree": 2}, "train_fsdp.py has context parallelism"),
        ({"expert_parallel_degree": 2}, "supports only 1"),
    ],
)
def test_what_is_not_provided_is_refused(sagemaker, config, said):
    with pytest.raises(ValueError, match=said):
        sagemaker.init(config)


@pytest.mark.torch
def test_transform_wants_init_first(sagemaker):
    import torch

    with pytest.raises(RuntimeError, match=r"call torch\.sagemaker\.init"):
        sagemaker.transform(torch.nn.Linear(1, 1))


@pytest.mark.torch
@pytest.mark.parametrize("norm_type", [0, -1, float("nan")])
def test_clipping_refuses_what_is_no_norm(sagemaker, norm_type):
    import torch
    from torch.sagemaker.grad_norm import clip_grad_norm_

    with pytest.raises(ValueError, match=r"norm_type is .*; allowed: numbers above 0, and inf"):
        clip_grad_norm_(torch.nn.Linear(1, 1), 1.0, norm_type)


@pytest.mark.torch
def test_delayed_parameters_get_their_values_and_missing_ones_are_noticed(sagemaker):
    import torch
    from torch.sagemaker.delayed_param import DelayedParamIniter

    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    initer = DelayedParamIniter(model)
    with pytest.raises(AssertionError, match="still on a meta device"):  # noqa: SIM117
        with initer.validate_params_and_buffers_inited():
            initer.get_param_init_fn()(model[0])

    with DelayedParamIniter(model).validate_params_and_buffers_inited(enabled=False):
        pass
    second = DelayedParamIniter(model)
    with second.validate_params_and_buffers_inited():
        for layer in model:
            second.get_param_init_fn()(layer)

    assert model[1].weight.abs().sum() > 0


@pytest.mark.torch
def test_shards_go_to_folders_not_to_s3(sagemaker):
    with pytest.raises(ValueError, match="save to a folder below the job's checkpoint folder"):
        sagemaker.checkpoint.save({}, checkpoint_id="s3://bucket/x")
