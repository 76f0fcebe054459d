"""Training with Hugging Face's Trainer on token shards, for train_huggingface.py.

The package imports `trainer` and transformers; its modules `hyperparameters` and `checkpoint_files` need neither torch
nor transformers.
"""
