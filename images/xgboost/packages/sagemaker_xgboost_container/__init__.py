"""AWS's XGBoost container, reimplemented from its documented contract: the algorithm, and script mode.

It runs in the engine image `xgboost`. It uses the standard library, xgboost, numpy, pandas, pyarrow, scipy,
scikit-learn and sagemaker_training. AWS's own package (github.com/aws/sagemaker-xgboost-container) is not on a package
index, and needs Python 3.8.
"""
