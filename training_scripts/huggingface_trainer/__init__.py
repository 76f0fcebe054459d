"""Training with Hugging Face's Trainer on token shards, for train_huggingface.py.

The package imports `trainer` and transformers; its module `checkpoint_files` needs neither torch nor transformers.
"""
