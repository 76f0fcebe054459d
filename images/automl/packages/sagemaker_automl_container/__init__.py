"""Programs of the image `sagemaker-sklearn-automl`, which run in the jobs that an AutoML job starts.

- `analyze` determines the column types, the problem type and the validation rows.
- `train` fits one candidate.
- `ensemble` averages the best candidates.
- `explain` reports the importance of columns and the errors of the best candidate.
- `serving` is copied into every model.tar.gz as `code/inference.py`, so it imports no other module of this
  package.

The modules use only the container's files. They may import scikit-learn and pandas. No code outside this
package imports them.
"""
