"""What a worker runs. Importing an operator loads neither boto3 nor the Amazon provider: tasks do, when they run."""
