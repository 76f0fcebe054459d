"""Hugging Face's files of Llama models: config.json and safetensors, read into and written from our decoder.

`trainer.llama.config` imports no framework, because a job's settings are checked without torch.
"""
