"""Code of a Trainyard training job inside its container, beside `train_ddp.py` and `evaluate.py`.

This package is uploaded alone: it may import torch, the standard library and itself, nothing else.
It knows the container contract (`SM_*` variables, `/opt/ml`, channels) and never who started the
job.
"""
