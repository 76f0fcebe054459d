"""SageMaker training instance types: their hardware and price, from one dated, replaceable data file."""
