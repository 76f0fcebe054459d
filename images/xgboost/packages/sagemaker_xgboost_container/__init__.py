"""AWS's XGBoost container under its own name, by its documented contract: the algorithm, and script mode.

It runs inside the engine image `xgboost`: the standard library, xgboost, numpy, pandas, pyarrow, sagemaker_training and
itself. AWS's own package (github.com/aws/sagemaker-xgboost-container) is on no package index and needs Python 3.8.
"""
