"""Code of a Trainyard training job inside its container, beside `train_ddp.py` and `evaluate.py`.

The training scripts are uploaded without the rest of Trainyard: this package may import torch, the standard library,
`trainyard_watch` and itself only. `zero` also imports DeepSpeed. The package follows the container contract (`SM_*`
variables, `/opt/ml`, channels) and does not depend on the service that started the job.
"""
