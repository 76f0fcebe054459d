"""Programs inside the jobs of an AutoML job: the image `sagemaker-sklearn-automl`.

`analyze` looks at the data, `train` fits one candidate, `ensemble` weighs candidates, `explain` says what the best one
looks at. `serving` goes into every model.tar.gz as `code/inference.py`, so it imports nothing of ours. These modules
know the container's files only, may import scikit-learn and pandas, and are imported by nothing outside.
"""
