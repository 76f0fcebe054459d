"""S3 on disk: the engine's object store and the WSGI application that serves it.

`object_store.ObjectStore` is the store. Several processes may use it at once: the engine's threads use
it behind the HTTP server, and job runners use it directly and hard-link objects instead of downloading
them. `application.S3Application` is the S3 API in front of the store: a WSGI callable.

This package imports only the standard library, the engine's HTTP server and `state` (SQLite helpers).

Promises:

- A process may be killed at any moment: a key then has its old or its new object, never a partial one.
- Memory use does not depend on the size of an object.
"""
