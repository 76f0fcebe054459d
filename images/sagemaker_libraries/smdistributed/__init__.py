"""The name space of SageMaker's distributed libraries, as Trainyard's local engine stands in for them."""
