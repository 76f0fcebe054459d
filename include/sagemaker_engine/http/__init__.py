"""The front door: one HTTP port, and the gateway that finds out which service a request is for."""
