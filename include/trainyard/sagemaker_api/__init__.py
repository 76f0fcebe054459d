"""SageMaker's wire format: this package renders requests and reads responses. Pure; it calls no service.

    job_kinds           operations, members, logs and console of each kind of job
    names               deterministic job names, and run ids as parts of S3 keys
    training_request    TrainingJobSpec -> CreateTrainingJob
    processing_request  ProcessingJobSpec -> CreateProcessingJob
    model_package       ModelVersion -> CreateModelPackage
    tuning_request      TuningJobSpec -> CreateHyperParameterTuningJob
    automl_request      AutoMLJobSpec -> CreateAutoMLJobV2
    request_check       check against every enum, pattern and maximum in botocore's description of the API
    snapshot            Describe response of a job of any kind -> one frozen, JSON-safe value
    failures            a snapshot or a service error -> the error class, by the message texts of `failure_table`
    images              a framework's version -> the address of AWS's image
    source_archive      a folder -> reproducible tar.gz

May use botocore's offline data: the description of the API, and the partitions of regions.
"""
