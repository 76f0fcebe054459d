"""S3 on disk: the engine's object store, and the HTTP application that speaks S3 in front of it.

`ObjectStore` is the store itself, safe for several processes at once: the engine's threads use it
behind the wire, job runners use it directly and hard-link objects instead of downloading them.
`S3Application` is the wire: a WSGI callable.

Imports the standard library and the engine's HTTP server only. Promises: killed at any moment, a
key has its old or its new object, never half of one; memory stays flat whatever an object's size.
"""

from __future__ import annotations

from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.s3.errors import S3Error
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.objects import CommonPrefix, ObjectAttributes, ObjectInfo

__all__ = [
    "CommonPrefix",
    "ObjectAttributes",
    "ObjectInfo",
    "ObjectStore",
    "S3Application",
    "S3Error",
]
