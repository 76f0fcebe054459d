"""CloudWatch Logs for the groups of training and processing jobs, read directly from the jobs' log files.

A job's runner appends every line of every host to `jobs/<kind>/<name>/logs/<host>-<epoch>.jsonl`. That file is the log
stream `<name>/<host>-<epoch>`. moto serves the groups outside `/aws/sagemaker/`.
"""
