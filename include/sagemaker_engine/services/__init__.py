"""Other AWS services: moto in this process, and operations that moto lacks."""
