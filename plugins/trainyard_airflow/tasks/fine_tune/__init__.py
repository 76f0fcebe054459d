"""The fine-tuning of a language model: a run of the shipped script by the stages of an own script's."""
