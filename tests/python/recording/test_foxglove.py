# SPDX-License-Identifier: Apache-2.0
"""Images are messages of Foxglove's own schema: its package reads them, and the schema in the file is the one it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import PATIENCE_S, Taken, mcap_reader, messages_of, sender

from arraybridge import Broker
from arraybridge.recording import Recorder, replay

raw_image = pytest.importorskip("foxglove_schemas_protobuf.RawImage_pb2", reason="foxglove-schemas-protobuf is not installed")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is not installed")

IMAGES: dict[str, tuple[Any, str]] = {
    "grey": (np.arange(12, dtype="u1").reshape(3, 4), "mono8"),
    "one colour": (np.arange(12, dtype="u1").reshape(3, 4, 1), "mono8"),
    "colours": (np.arange(36, dtype="u1").reshape(3, 4, 3), "rgb8"),
    "with alpha": (np.arange(48, dtype="u1").reshape(3, 4, 4), "rgba8"),
    "sixteen bits": (np.arange(12, dtype="u2").reshape(3, 4) * 1000, "mono16"),
    "floating": (np.linspace(0, 1, 12, dtype="f4").reshape(3, 4), "32FC1"),
    "part of another": (np.arange(600, dtype="u1").reshape(10, 20, 3)[2:5, 3:7], "rgb8"),
}
NO_IMAGES: dict[str, Any] = {
    "two colours": np.zeros((3, 4, 2), "u1"),
    "one dimension": np.zeros(12, "u1"),
    "double": np.zeros((3, 4)),
    "no pixels": np.zeros((0, 4), "u1"),
    "a tree": {"a": np.zeros((3, 4), "u1")},
}


def recorded(broker: Broker, path: Path, array: Any) -> None:
    out = sender(broker, "camera")
    with Recorder(path, ["camera"], broker=broker, foxglove=True) as recorder:
        out.send(array)
        out.close()
        assert recorder.wait(PATIENCE_S)


@pytest.mark.parametrize("name", IMAGES)
def test_foxglove_reads_an_image(broker: Broker, tmp_path: Path, name: str) -> None:
    array, encoding = IMAGES[name]
    recorded(broker, tmp_path / "run.mcap", array)
    (message,) = messages_of(tmp_path / "run.mcap", "camera/image")
    image = raw_image.RawImage.FromString(message.data)
    assert (image.height, image.width, image.encoding, image.step) == (3, 4, encoding, array[0].nbytes)
    assert image.data == array.tobytes() and image.frame_id == "camera"
    assert image.timestamp.seconds * 10**9 + image.timestamp.nanos == message.publish_time


def test_the_schema_in_the_file_is_that_of_foxglove(broker: Broker, tmp_path: Path) -> None:
    recorded(broker, tmp_path / "run.mcap", IMAGES["colours"][0])
    with open(tmp_path / "run.mcap", "rb") as file:
        summary = mcap_reader.make_reader(file).get_summary()
    (channel,) = [each for each in summary.channels.values() if each.topic == "camera/image"]
    schema = summary.schemas[channel.schema_id]
    assert (channel.message_encoding, schema.encoding, schema.name) == ("protobuf", "protobuf", "foxglove.RawImage")
    files = {each.name: each for each in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file}
    theirs = descriptor_pb2.FileDescriptorProto()
    raw_image.DESCRIPTOR.CopyToProto(theirs)
    assert fields_of(files["foxglove/RawImage.proto"]) == fields_of(theirs)
    assert list(files["foxglove/RawImage.proto"].dependency) == list(theirs.dependency) == ["google/protobuf/timestamp.proto"]
    timestamp = descriptor_pb2.FileDescriptorProto()
    raw_image.RawImage.DESCRIPTOR.fields_by_name["timestamp"].message_type.file.CopyToProto(timestamp)
    assert fields_of(files["google/protobuf/timestamp.proto"]) == fields_of(timestamp)


def fields_of(file: Any) -> tuple[Any, ...]:
    (message,) = file.message_type
    fields = sorted((each.number, each.name, each.type, each.label, each.type_name) for each in message.field)
    return file.package, file.syntax, message.name, fields


def test_a_reader_with_the_file_alone_decodes_it(broker: Broker, tmp_path: Path) -> None:
    """As Foxglove does: the message's class is made of the schema in the file."""
    from google.protobuf import descriptor_pool, message_factory

    recorded(broker, tmp_path / "run.mcap", IMAGES["colours"][0])
    with open(tmp_path / "run.mcap", "rb") as file:
        ((schema, _, message),) = mcap_reader.make_reader(file).iter_messages("camera/image")
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file:
        pool.Add(each)
    image = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))()
    image.ParseFromString(message.data)
    assert image.encoding == "rgb8" and image.data == IMAGES["colours"][0].tobytes()


@pytest.mark.parametrize("name", NO_IMAGES)
def test_other_arrays_are_recorded_without_an_image(broker: Broker, tmp_path: Path, name: str) -> None:
    recorded(broker, tmp_path / "run.mcap", NO_IMAGES[name])
    assert messages_of(tmp_path / "run.mcap", "camera/image") == []
    assert len(messages_of(tmp_path / "run.mcap", "camera")) == 1


def test_images_are_not_replayed_beside_their_arrays(broker: Broker, tmp_path: Path) -> None:
    recorded(broker, tmp_path / "run.mcap", IMAGES["colours"][0])
    taken = Taken(broker, "test")
    done = replay(tmp_path / "run.mcap", broker=broker, rename={"camera": "test"}, timeout=PATIENCE_S)
    assert done.messages == {"test": 1}
    assert np.array_equal(taken.all()[0].array, IMAGES["colours"][0])
