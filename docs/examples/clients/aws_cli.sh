#!/bin/sh
# The AWS CLI: data and code to S3, a job, its end, its log; another job, stopped.
set -eu
here=$(dirname "$0")
name=aws-cli-$(date +%s)
image=763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312

tar -C "$here/code" -czf - train.py | aws s3 cp - "s3://$BUCKET/aws-cli/sourcedir.tar.gz"
aws s3 cp "$here/code/train.py" "s3://$BUCKET/aws-cli/train/train.py"

create() {
    aws sagemaker create-training-job \
        --training-job-name "$1" \
        --role-arn "$ROLE_ARN" \
        --algorithm-specification "TrainingImage=$image,TrainingInputMode=File" \
        --hyper-parameters "sagemaker_program=train.py,sagemaker_submit_directory=s3://$BUCKET/aws-cli/sourcedir.tar.gz,epochs=$2" \
        --input-data-config "ChannelName=train,DataSource={S3DataSource={S3DataType=S3Prefix,S3Uri=s3://$BUCKET/aws-cli/train}}" \
        --output-data-config "S3OutputPath=s3://$BUCKET/aws-cli/output" \
        --resource-config InstanceType=ml.m5.large,InstanceCount=1,VolumeSizeInGB=10 \
        --stopping-condition MaxRuntimeInSeconds=600
}

create "$name" 3
aws sagemaker wait training-job-completed-or-stopped --training-job-name "$name"
aws sagemaker describe-training-job --training-job-name "$name" \
    --query '[TrainingJobStatus, ModelArtifacts.S3ModelArtifacts]' --output text
# With version 2 of the CLI also: aws logs tail /aws/sagemaker/TrainingJobs --log-stream-name-prefix "$name"
aws logs filter-log-events --log-group-name /aws/sagemaker/TrainingJobs --log-stream-name-prefix "$name" \
    --start-time 0 --interleaved --query 'events[].[message]' --output text

create "$name-stopped" 1000000000
aws sagemaker stop-training-job --training-job-name "$name-stopped"
aws sagemaker wait training-job-completed-or-stopped --training-job-name "$name-stopped"
aws sagemaker list-training-jobs --name-contains "$name" \
    --query 'TrainingJobSummaries[].[TrainingJobName, TrainingJobStatus]' --output text
