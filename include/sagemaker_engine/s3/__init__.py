"""S3 on disk: the engine's object store, and the HTTP application that speaks S3 in front of it.

`object_store.ObjectStore` is the store itself, safe for several processes at once: the engine's threads use it
behind the wire, job runners use it directly and hard-link objects instead of downloading them.
`application.S3Application` is the wire: a WSGI callable.

Imports the standard library and the engine's HTTP server only. Promises: killed at any moment, a
key has its old or its new object, never half of one; memory stays flat whatever an object's size.
"""
