"""The IAM policies that Trainyard needs, as documents to read and as templates to deploy.

policies    the statements for an account and the features in use
templates   the same with roles, bucket and log groups, for CloudFormation and Terraform
"""
