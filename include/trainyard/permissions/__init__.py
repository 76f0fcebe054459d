"""The IAM policies that Trainyard needs, as documents to read and as templates to deploy.

policies    the policies' statements for an account and the features in use
templates   templates for CloudFormation and Terraform, with these policies, the roles, the bucket and
            the log groups
"""
