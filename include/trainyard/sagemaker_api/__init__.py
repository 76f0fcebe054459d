"""The only package with AWS wire keys: it renders requests and reads descriptions. Pure; it calls no service.

    job_kinds           operations, members, logs and console of each kind of job
    names               deterministic job names, and run ids as parts of S3 keys
    training_request    TrainingJobSpec -> CreateTrainingJob
    processing_request  ProcessingJobSpec -> CreateProcessingJob
    model_package       ModelVersion -> CreateModelPackage
    request_check       check of every enum, pattern and maximum of botocore's model
    snapshot            DescribeTrainingJob / DescribeProcessingJob -> one frozen, JSON-safe value
    failures            a snapshot or a service error -> the error class (the only place that reads message text)
    images              a framework's version -> the address of AWS's image
    source_archive      a folder -> reproducible tar.gz

May use botocore's model loader (offline data).
"""
