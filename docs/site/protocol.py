# SPDX-License-Identifier: Apache-2.0
"""The messages of the protocol as Markdown: services, messages and enumerations of the .proto files with their comments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

Comments = dict[tuple[int, ...], str]


def descriptors(folder: Path) -> list[FileDescriptorProto]:
    """What the compiler of protocol buffers reads in all files of the folder."""
    with tempfile.NamedTemporaryFile() as made:
        words = [f"--proto_path={folder}", "--include_source_info", f"--descriptor_set_out={made.name}"]
        files = [str(file) for file in sorted(folder.rglob("*.proto"))]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words, *files], check=True)
        return list(FileDescriptorSet.FromString(Path(made.name).read_bytes()).file)


def safe(text: str) -> str:
    """Text of a comment in a paragraph or a table's cell."""
    for letter in "\\<>[]*_$|":
        text = text.replace(letter, "\\" + letter)
    return " ".join(text.split())


def comments_of(file: FileDescriptorProto) -> Comments:
    """The comment at each path, before the declaration or behind it."""
    return {tuple(each.path): safe(f"{each.leading_comments} {each.trailing_comments}") for each in file.source_code_info.location}


def type_of(field: FieldDescriptorProto) -> str:
    name = field.type_name.rpartition(".")[2]
    kind = f"[{name}](#{name.lower()})" if name else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    return f"repeated {kind}" if field.label == FieldDescriptorProto.LABEL_REPEATED else kind


def message(one: DescriptorProto, path: tuple[int, ...], comments: Comments) -> list[str]:
    lines = [f"### {one.name}", "", comments.get(path, ""), ""]
    if one.field:
        lines += ["| Field | Type | |", "|---|---|---|"]
    for number, field in enumerate(one.field):
        lines.append(f"| `{field.name}` = {field.number} | {type_of(field)} | {comments.get((*path, 2, number), '')} |")
    for number, inner in enumerate(one.nested_type):
        lines += ["", *message(inner, (*path, 3, number), comments)]
    for number, values in enumerate(one.enum_type):
        lines += ["", *enumeration(values, (*path, 4, number), comments)]
    return [*lines, ""]


def enumeration(one: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> list[str]:
    lines = [f"### {one.name}", "", comments.get(path, ""), "", "| Value | |", "|---|---|"]
    return [*lines, *(f"| `{value.name}` = {value.number} | {comments.get((*path, 2, n), '')} |" for n, value in enumerate(one.value)), ""]


def page_of(file: FileDescriptorProto) -> str:
    comments = comments_of(file)
    lines = [f"## `{file.name}`", "", comments.get((12,), ""), ""]
    for place, service in enumerate(file.service):
        lines += [f"### Service {service.name}", "", comments.get((6, place), ""), "", "| Call | Takes | Returns | |", "|---|---|---|---|"]
        for number, call in enumerate(service.method):
            takes, returns = (each.rpartition(".")[2] for each in (call.input_type, call.output_type))
            stream = "a stream of " if call.server_streaming else ""
            text = comments.get((6, place, 2, number), "")
            lines.append(f"| `{call.name}` | [{takes}](#{takes.lower()}) | {stream}[{returns}](#{returns.lower()}) | {text} |")
        lines.append("")
    for number, one in enumerate(file.message_type):
        lines += message(one, (4, number), comments)
    for number, values in enumerate(file.enum_type):
        lines += enumeration(values, (5, number), comments)
    return "\n".join(lines)


def markdown(folder: Path) -> str:
    return "\n".join(page_of(file) for file in descriptors(folder))
