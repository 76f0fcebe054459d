"""The parts of train_huggingface.py: transformers' Trainer on token shards.

Stands on `trainer` and transformers; `hyperparameters` and `checkpoint_files` need neither torch nor transformers.
"""
