"""The AWS JSON protocol, driven by botocore's `service-2.json`: no module here is specific to an operation.

`validation` rejects invalid requests as the service's own front end does, in its wording. `json_service` calls the
handlers and reduces their responses to the members that `service-2.json` defines. This package may import the
standard library and `regex`. It reads botocore's data files but does not import botocore, which would cost start-up
time.
"""
