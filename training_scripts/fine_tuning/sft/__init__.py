"""Fine-tuning of causal language models by transformers, PEFT and TRL, as a training job's script.

Imports torch, transformers, PEFT, TRL and `trainyard_watch`, which is uploaded beside it; nothing of the product.
"""
