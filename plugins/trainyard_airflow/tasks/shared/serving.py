"""Serving image and instance types of a run's model, and preflight's findings on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding
from trainyard.specs.fine_tune_conf import ENTRY_POINT, SOURCE_DIR, is_sharding_weights
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sagemaker_api.serving import Serving
    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard_airflow.hooks.aws_clients import AwsClients


def run_serving(conf: BaseRunConf, *, region: str, trained_on: str) -> Serving | None:
    """Return the image, variables and instance types that serve the model of a run.

    The result is None in two cases:

    - The conf has no serving image, and the model is only an adapter or comes from the user's own script.
    - AWS has no image for the region; a warning is logged.

    Args:
        conf: the run's conf.
        region: region of the run.
        trained_on: instance type of the training.
    """
    from trainyard.sagemaker_api.serving import serving_of  # a DAG file imports this module

    image = conf.inference_image_uri
    if isinstance(conf, RunConf):
        return serving_of(
            "pytorch-inference",
            region=region,
            trained_on=trained_on,
            is_whole=conf.num_state_shards == 1,
            image=image,
        )
    if not isinstance(conf, ScriptConf):
        return None
    if has_our_handlers(conf):
        return serving_of(
            "huggingface-inference",
            region=region,
            trained_on=trained_on,
            is_whole=not is_sharding_weights(
                conf.hyperparameters.get("strategy", "ddp"), conf.hyperparameters
            ),
            image=image,
        )
    return None if image is None else _own(conf, image)


def has_our_handlers(conf: ScriptConf) -> bool:
    """Return whether the archive of the run's model gets Trainyard's serving handlers.

    It gets them if the run is a fine-tuning with a merged model.
    """
    is_fine_tuning = (conf.source_dir, conf.entry_point) == (SOURCE_DIR, ENTRY_POINT)
    return is_fine_tuning and conf.hyperparameters.get("artifact", "merged") == "merged"


def serving_findings(clients: AwsClients, conf: BaseRunConf) -> Iterator[Finding]:
    """Yield an error for each serving image that does not exist, and for instance types that AWS does not accept."""
    from trainyard.sagemaker_api.serving import accepted_types  # a DAG file imports this module
    from trainyard_airflow.hooks.image_digests import image_findings  # likewise

    served = [
        run_serving(conf, region=clients.region, trained_on=each.instance_type)
        for each in conf.rungs
    ]
    images = [each.image_uri for each in served if each]
    yield from image_findings(clients, images, where="inference_image_uri")
    types = conf.inference_instance_types if isinstance(conf, ScriptConf) else ()
    if wrong := sorted(set(types) - set(accepted_types(types))):
        yield Finding(
            where="inference_instance_types",
            what="has types that endpoints and batch transform do not both accept",
            got=", ".join(wrong),
            next_step="remove them, or choose types such as ml.m5.xlarge or ml.g5.xlarge",
        )


def _own(conf: ScriptConf, image: str) -> Serving:
    from trainyard.sagemaker_api.serving import Serving, handlers

    entry_point = conf.inference_entry_point
    return Serving(
        image_uri=image,
        instance_types=conf.inference_instance_types,
        environment=handlers(entry_point) if entry_point else {},
        content_types=conf.inference_content_types,
    )
