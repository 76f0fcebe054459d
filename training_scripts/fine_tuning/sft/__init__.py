"""Fine-tuning of causal language models with transformers, PEFT and TRL, in a training job.

The package may import torch, transformers, PEFT, TRL and `trainyard_watch`, which is uploaded with it, but nothing else
of Trainyard.
"""
