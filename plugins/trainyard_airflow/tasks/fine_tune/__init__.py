"""Fine-tuning of a language model: the pipeline for users' own scripts, with a script that Trainyard ships."""
