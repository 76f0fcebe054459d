"""Training with Hugging Face's Trainer on token shards, for train_huggingface.py.

Imports `trainer` and transformers; `hyperparameters` and `checkpoint_files` need neither torch nor transformers.
"""
