"""Tasks of `train_end_to_end`, `train_on_schedule`, `tune_mapped` and `plan_training`."""
