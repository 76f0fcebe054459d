"""Namespace of SageMaker's distributed libraries, as replaced by Trainyard's local engine."""
