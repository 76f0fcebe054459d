"""Engine images: virtual environments that emulate container images whose packages Trainyard itself lacks.

An engine image has pinned packages, and `images/<name>/requirements.txt` describes it. It is built at its
first use, into a folder that all engines of a user share.

- `image_file` reads the files of the `images` folder.
- `image_store` finds and builds images. It builds each only once, even if several processes request it.
- `python -m sagemaker_engine.images` (`make images`) builds images ahead of their use.

This package imports the standard library only. The reason is that each job's runner (the process that runs
the job) imports it and starts without site-packages.
"""
