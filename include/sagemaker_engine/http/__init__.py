"""HTTP front end of the engine: one port, and the gateway that routes requests to services."""
