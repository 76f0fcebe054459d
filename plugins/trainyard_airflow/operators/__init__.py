"""Operators. Importing them does not import boto3 or the Amazon provider, which are imported when a task runs."""
