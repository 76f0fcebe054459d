"""Fine-tuning of a language model: a script of Trainyard's in the pipeline for users' own scripts."""
