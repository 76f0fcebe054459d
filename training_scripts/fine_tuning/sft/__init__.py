"""Fine-tuning of causal language models with transformers, PEFT and TRL, in a training job.

May import torch, transformers, PEFT, TRL and `trainyard_watch`, which is uploaded with it; nothing else of Trainyard.
"""
