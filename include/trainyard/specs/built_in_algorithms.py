"""Requirements of AWS's built-in algorithms, as one table: hyperparameters, channels, instances.

Source: SageMaker Developer Guide, each algorithm's pages "hyperparameters" and "input/output interface", November 2026.
The ranges cover the hyperparameters that the guide marks as required and those that are set most often. The service
checks all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

INFINITY = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float = INFINITY
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInAlgorithm:
    """An algorithm that AWS ships as an image, without a script.

    Attributes:
        repositories: last path components of its image repositories.
        framework: the SDK's name for the algorithm.
        required: hyperparameters without a default.
        annotated: further channels that a data set of single image files needs (content type application/x-image).
        on_cpu: whether it trains on instances without GPUs.
        gpu_families: families of GPU instance types on which it trains.
        is_parallel: whether it trains on several instances.
    """

    title: str
    framework: str
    repositories: tuple[str, ...]
    required: Mapping[str, ValueRange]
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    channels: tuple[str, ...] = ("train",)
    optional_channels: tuple[str, ...] = ()
    annotated: tuple[str, ...] = ()
    content_types: tuple[str, ...] = ()
    sharded_channels: tuple[str, ...] = ()
    on_cpu: bool = True
    gpu_families: tuple[str, ...] = ()
    is_parallel: bool = True


_VISION_GPUS = ("p2", "p3", "g4dn", "g5")
_COUNT = ValueRange(low=1)
_CLASSES = ValueRange(low=2)
_RATE = ValueRange(low=0, high=1, is_whole=False)
_X_IMAGE, _X_RECORDIO = "application/x-image", "application/x-recordio"

ALGORITHMS = (
    BuiltInAlgorithm(
        title="XGBoost",
        framework="xgboost",
        repositories=("sagemaker-xgboost", "xgboost"),
        required={"num_round": _COUNT},
        ranges={
            "num_class": _CLASSES,
            "max_depth": ValueRange(low=0),
            "eta": _RATE,
            "subsample": _RATE,
            "early_stopping_rounds": _COUNT,
            "csv_weights": ValueRange(low=0, high=1),
        },
        choices={"booster": ("gbtree", "gblinear", "dart")},
        optional_channels=("validation", "code"),
        content_types=(
            *("text/csv", "csv", "text/libsvm", "text/x-libsvm", "libsvm"),
            *("application/x-parquet", "parquet"),
            *("application/x-recordio-protobuf", "recordio-protobuf"),
        ),
        gpu_families=("p2", "p3", "g4dn", "g5"),
    ),
    BuiltInAlgorithm(
        title="Image Classification",
        framework="image-classification",
        repositories=("image-classification",),
        required={"num_classes": _CLASSES, "num_training_samples": _COUNT},
        ranges={
            "epochs": _COUNT,
            "learning_rate": _RATE,
            "mini_batch_size": _COUNT,
            "use_pretrained_model": ValueRange(low=0, high=1),
        },
        choices={
            "num_layers": ("18", "34", "50", "101", "152", "200", "20", "32", "44", "56", "110"),
            "optimizer": ("sgd", "adam", "rmsprop", "nag"),
            "kv_store": ("dist_sync", "dist_async"),
        },
        channels=("train", "validation"),
        annotated=("train_lst", "validation_lst"),
        optional_channels=("model",),
        content_types=(_X_RECORDIO, _X_IMAGE),
        on_cpu=False,
        gpu_families=_VISION_GPUS,
    ),
    BuiltInAlgorithm(
        title="Object Detection",
        framework="object-detection",
        repositories=("object-detection",),
        required={"num_classes": _COUNT, "num_training_samples": _COUNT},
        ranges={
            "epochs": _COUNT,
            "image_shape": ValueRange(low=300),
            "learning_rate": _RATE,
            "mini_batch_size": _COUNT,
            "nms_threshold": _RATE,
            "overlap_threshold": _RATE,
            "use_pretrained_model": ValueRange(low=0, high=1),
        },
        choices={
            "base_network": ("vgg-16", "resnet-50"),
            "optimizer": ("sgd", "adam", "rmsprop", "adadelta"),
            "kv_store": ("dist_sync", "dist_async"),
        },
        channels=("train", "validation"),
        annotated=("train_annotation", "validation_annotation"),
        optional_channels=("model",),
        content_types=(_X_RECORDIO, _X_IMAGE),
        on_cpu=False,
        gpu_families=_VISION_GPUS,
    ),
    BuiltInAlgorithm(
        title="Semantic Segmentation",
        framework="semantic-segmentation",
        repositories=("semantic-segmentation",),
        required={"num_classes": ValueRange(low=2, high=254), "num_training_samples": _COUNT},
        ranges={
            "epochs": _COUNT,
            "crop_size": ValueRange(low=16),
            "learning_rate": _RATE,
            "mini_batch_size": _COUNT,
        },
        choices={
            "backbone": ("resnet-50", "resnet-101"),
            "algorithm": ("fcn", "psp", "deeplab"),
            "optimizer": ("sgd", "adam", "adagrad", "nag", "rmsprop"),
        },
        channels=("train", "validation"),
        annotated=("train_annotation", "validation_annotation"),
        optional_channels=("label_map", "model"),
        content_types=(_X_IMAGE,),
        on_cpu=False,
        gpu_families=_VISION_GPUS,
        is_parallel=False,
    ),
    BuiltInAlgorithm(
        title="Random Cut Forest",
        framework="randomcutforest",
        repositories=("randomcutforest",),
        required={"feature_dim": ValueRange(low=1, high=10000)},
        ranges={
            "num_samples_per_tree": ValueRange(low=1, high=2048),
            "num_trees": ValueRange(low=50, high=1000),
        },
        optional_channels=("test",),
        content_types=(
            *("text/csv", "text/csv;label_size=0", "text/csv;label_size=1"),
            "application/x-recordio-protobuf",
        ),
        sharded_channels=("train",),
    ),
)


def built_in_algorithm(*, image_uri: str | None, framework: str) -> BuiltInAlgorithm | None:
    """Return the algorithm of an image or of an SDK framework name; None if it is not a built-in algorithm.

    Worked: `683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1` is XGBoost.
    """
    if image_uri is None:
        return next((each for each in ALGORITHMS if each.framework == framework), None)
    repository = image_uri.rpartition("/")[2].partition("@")[0].partition(":")[0]
    return next((each for each in ALGORITHMS if repository in each.repositories), None)
