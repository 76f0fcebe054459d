"""S3's error codes as exceptions: one table of status and wording, one class.

Wording source: Amazon S3 API reference, "Error responses" (2026-11), compared with the texts that AWS's SDKs and
their tests match.
"""

from __future__ import annotations

_ERRORS: dict[str, tuple[int, str]] = {
    "AccessDenied": (403, "Access Denied"),
    "BadDigest": (
        400,
        (
            "The Content-MD5 or checksum value that you specified did not match what the server"
            " received."
        ),
    ),
    "BucketAlreadyExists": (
        409,
        (
            "The requested bucket name is not available. The bucket namespace is shared by all "
            "users of the system. Please select a different name and try again."
        ),
    ),
    "BucketAlreadyOwnedByYou": (
        409,
        "Your previous request to create the named bucket succeeded and you already own it.",
    ),
    "BucketNotEmpty": (409, "The bucket you tried to delete is not empty"),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed size"),
    "IllegalLocationConstraintException": (400, "The location constraint is incompatible"),
    "IncompleteBody": (
        400,
        ("You did not provide the number of bytes specified by the Content-Length HTTP header"),
    ),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidDigest": (400, "The Content-MD5 you specified was invalid."),
    "InvalidLocationConstraint": (400, "The specified location-constraint is not valid"),
    "InvalidPart": (
        400,
        (
            "One or more of the specified parts could not be found.  The part may not have been"
            " uploaded, or the specified entity tag may not match the part's entity tag."
        ),
    ),
    "InvalidPartNumber": (416, "The requested partnumber is not satisfiable"),
    "InvalidPartOrder": (
        400,
        ("The list of parts was not in ascending order. Parts must be ordered by part number."),
    ),
    "InvalidRange": (416, "The requested range is not satisfiable"),
    "InvalidRequest": (400, "Invalid Request"),
    "InvalidTag": (
        400,
        (
            "The tag provided was not a valid tag. This error can occur if the tag did not pass"
            " input validation."
        ),
    ),
    "InvalidURI": (400, "Couldn't parse the specified URI."),
    "KeyTooLongError": (400, "Your key is too long"),
    "MalformedXML": (
        400,
        (
            "The XML you provided was not well-formed or did not validate against our published"
            " schema"
        ),
    ),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size"),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchBucketPolicy": (404, "The bucket policy does not exist"),
    "NoSuchCORSConfiguration": (404, "The CORS configuration does not exist"),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchLifecycleConfiguration": (404, "The lifecycle configuration does not exist"),
    "NoSuchPublicAccessBlockConfiguration": (
        404,
        "The public access block configuration was not found",
    ),
    "NoSuchTagSet": (404, "The TagSet does not exist"),
    "NoSuchUpload": (
        404,
        (
            "The specified upload does not exist. The upload ID may be invalid, or the upload "
            "may have been aborted or completed."
        ),
    ),
    # Not an S3 code: S3 is never full. The status is not 500 or 503, because clients retry those and waiting
    # does not help here.
    "InsufficientStorage": (507, "No space is left on the disk."),
    "NoSuchVersion": (404, "The specified version does not exist."),
    "NoSuchWebsiteConfiguration": (
        404,
        "The specified bucket does not have a website configuration",
    ),
    "NotImplemented": (
        501,
        "A header or query you provided requested a function that is not implemented.",
    ),
    "NotModified": (304, "Not Modified"),
    "ObjectLockConfigurationNotFoundError": (
        404,
        "Object Lock configuration does not exist for this bucket",
    ),
    "OwnershipControlsNotFoundError": (404, "The bucket ownership controls were not found"),
    "PreconditionFailed": (412, "At least one of the pre-conditions you specified did not hold"),
    "ReplicationConfigurationNotFoundError": (404, "The replication configuration was not found"),
    "ServerSideEncryptionConfigurationNotFoundError": (
        404,
        "The server side encryption configuration was not found",
    ),
    "RequestTimeout": (
        400,
        (
            "Your socket connection to the server was not read from or written to within the "
            "timeout period. Idle connections will be closed."
        ),
    ),
    "ServiceUnavailable": (503, "Service is unable to handle request."),
    "SlowDown": (503, "Please reduce your request rate."),
    "XAmzContentChecksumMismatch": (
        400,
        "The provided 'x-amz-checksum' header does not match what was computed.",
    ),
    "XAmzContentSHA256Mismatch": (
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
}


class S3Error(Exception):
    """A request that S3 rejects, with the service's `code` and `status`.

    `elements` are further elements of the error document, such as `Key` or `BucketName`.
    """

    def __init__(self, code: str, message: str | None = None, **elements: str) -> None:
        self.code = code
        self.status, wording = _ERRORS[code]
        self.message = message or wording
        self.elements = elements
        detail = ", ".join(f"{name}={text!r}" for name, text in elements.items())
        super().__init__(f"{code}: {self.message}" + (f" ({detail})" if detail else ""))

    @classmethod
    def of_status(cls, status: int, code: str) -> S3Error:
        """Return an error with this status and code, which need not be in the table of errors.

        If the code is not in the table, the error has the wording of InternalError.
        """
        error = cls(code if code in _ERRORS else "InternalError")
        error.code, error.status = code, status
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.code, self.message, self.elements)


def _rebuild(code: str, message: str, elements: dict[str, str]) -> S3Error:
    return S3Error(code, message, **elements)
