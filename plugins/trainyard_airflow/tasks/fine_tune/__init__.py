"""Fine-tuning of a language model: the shipped script in the pipeline of an own script."""
