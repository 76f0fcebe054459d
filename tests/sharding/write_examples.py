"""Write `examples.tfrecord.gz` with TensorFlow: `pip install tensorflow-cpu==2.21.0`, then run this file."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

NUM_EXAMPLES = 40


def example(n: int) -> bytes:
    """Return example n, with the values of `written_row` in `test_tfrecord.py`."""
    values = {
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[n - 5])),
        "big": tf.train.Feature(int64_list=tf.train.Int64List(value=[2**62 + n])),
        "ratio": tf.train.Feature(float_list=tf.train.FloatList(value=[n / 3])),
        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"é{n}\n".encode()])),
        "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=range(n % 5 + 1))),
        "empty": tf.train.Feature(int64_list=tf.train.Int64List(value=[n] if n % 3 else [])),
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\xff\xd8\xff\0"])),
    }
    if n % 4:
        values["maybe"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"s{n}".encode()]))
    return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


if __name__ == "__main__":
    path = str(Path(__file__).with_name("examples.tfrecord.gz"))
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
        for number in range(NUM_EXAMPLES):
            writer.write(example(number))
