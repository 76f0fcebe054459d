"""The AWS JSON protocol, driven by botocore's `service-2.json`: nothing here knows an operation.

A request goes through `validation` (what the service's own front end refuses, in its wording), an
answer through `shaping` (only members of the model, in wire types). May import the standard library
and `regex`; reads botocore's data files but does not import botocore, which costs start-up time.
"""
