"""Parsed S3 requests: bucket, key, query and headers, for all addressing styles."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HOST_MARKS = (".s3.", ".s3-")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Request:
    """One request. `bucket` and `key` are empty if the address names none."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    environ: Mapping[str, Any]

    def header(self, name: str) -> str | None:
        """Return a header's text, or None if the request does not give it.

        An x-amz header can also be given as the query parameter of the same name, as in a presigned URL. If both
        are present, the header is used.
        """
        value = self.environ.get("HTTP_" + name.upper().replace("-", "_"))
        if value is None and name.startswith("x-amz-"):
            value = next((text for key, text in self.query.items() if key.lower() == name), None)
        return None if value is None else str(value)

    def headers_under(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield (rest of the name in lower case, value) of each header and query parameter with this prefix."""
        mark = "HTTP_" + prefix.upper().replace("-", "_")
        for name, value in self.environ.items():
            if name.startswith(mark):
                yield name[len(mark) :].lower().replace("_", "-"), value
        for name, value in self.query.items():
            if name.lower().startswith(prefix):
                yield name[len(prefix) :].lower(), value

    def date_header(self, name: str) -> float | None:
        """Return a date header in epoch seconds, or None if it is absent or not a date."""
        text = self.header(name)
        try:
            return None if text is None else parsedate_to_datetime(text).timestamp()
        except ValueError:
            return None

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        """Return a query parameter as an integer from `least` to `most`, or `default` if it is absent.

        Raises:
            S3Error: InvalidArgument.
        """
        text = self.query.get(name)
        if text is None or text == "":
            return default
        value = int(text) if text.lstrip("-").isdecimal() else -1
        if not least <= value <= most:
            raise S3Error(
                "InvalidArgument",
                f"Argument {name} must be an integer between {least} and {most}",
                ArgumentName=name,
                ArgumentValue=text,
            )
        return value

    @property
    def content_type(self) -> str | None:
        """The body's media type as sent, or None."""
        return self.environ.get("CONTENT_TYPE") or None

    @property
    def region(self) -> str:
        """The region of the request's signature; us-east-1 if it is not signed."""
        credential = self.query.get("X-Amz-Credential", "")
        scope = credential or self.environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2]
        words = scope.partition(",")[0].split("/")
        return words[2] if len(words) > 4 and words[2] else "us-east-1"


def read_request(environ: Mapping[str, Any]) -> S3Request:
    """Return the request of a WSGI environ.

    Raises:
        S3Error: InvalidURI, if bucket or key is not valid UTF-8.
    """
    try:
        path = str(environ["PATH_INFO"]).encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise S3Error("InvalidURI", URI=str(environ["PATH_INFO"])) from error
    bucket = _bucket_of_host(environ.get("HTTP_HOST", ""))
    path = path.removeprefix("/")
    if bucket:
        key = path
    else:
        bucket, _, key = path.partition("/")
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    return S3Request(
        method=environ["REQUEST_METHOD"], bucket=bucket, key=key, query=query, environ=environ
    )


def _bucket_of_host(host: str) -> str:
    """Return the bucket in a virtual-host style address, or an empty string.

    Examples: data.s3.eu-west-1.amazonaws.com, data.s3.localhost:4566 and data.localhost:4566 all
    give data; 127.0.0.1, localhost and s3.amazonaws.com give an empty string.
    """
    name = host.partition(":")[0].lower()
    for mark in _HOST_MARKS:
        before, found, _ = name.partition(mark)
        if found:
            return before
    if name.endswith(".localhost"):
        before = name.removesuffix(".localhost")
        return "" if before == "s3" or before.startswith("s3.") else before
    return ""
