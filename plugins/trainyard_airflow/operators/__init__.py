"""Operators. Importing one loads neither boto3 nor the Amazon provider: tasks do, when they run."""
