"""The run of a script of one's own: from its conf to a registered model."""
