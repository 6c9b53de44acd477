# SPDX-License-Identifier: Apache-2.0
"""Generates C++ structs, readers and writers from .proto files: ``generate.py NAMESPACE OUTPUT.h OUTPUT.cc SOURCE.proto...``.

This program parses the sources itself, so that the client needs no protobuf library and its build no protoc. The sources may use
proto3 messages, enums, oneof, optional, repeated, maps of texts and ``[lazy = true]``; anything else is an error. Services and
reserved numbers are skipped. A lazy field is kept as the bytes of its message. tests/unit/wire compares the generated code with libprotobuf.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(r'"[^"]*"|[\w.]+|\S')
NUMBERS = {"uint32": "uint32_t", "uint64": "uint64_t", "int32": "int32_t", "int64": "int64_t", "bool": "bool", "fixed64": "uint64_t"}
TEXTS = {"string": "Text", "bytes": "Bytes"}
KEYWORDS = {"namespace", "operator", "register", "default", "class", "template"}


@dataclass
class Field:
    name: str
    number: int
    kind: str  # a scalar's name, "enum" or "message"
    type: str  # in C++
    label: str = ""  # "repeated", "optional" or a oneof's name
    lazy: bool = False

    @property
    def member(self) -> str:
        return self.name + "_" if self.name in KEYWORDS else self.name

    @property
    def may_be_absent(self) -> bool:
        return self.label != "repeated" and (self.label != "" or (self.kind == "message" and not self.lazy))

    @property
    def wire_type(self) -> str:
        if self.kind in TEXTS or self.kind == "message":
            return "kBytes"
        return "kFixed64" if self.kind == "fixed64" else "kVarint"

    def declared(self) -> str:
        if self.label == "repeated":
            return f"std::vector<{self.type}> {self.member}{{}};"
        return f"std::optional<{self.type}> {self.member}{{}};" if self.may_be_absent else f"{self.type} {self.member}{{}};"


@dataclass
class Enum:
    name: str
    values: list[tuple[str, int]] = field(default_factory=list)

    def text(self) -> str:
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).upper() + "_"
        names = ("k" + "".join(word.capitalize() for word in name.removeprefix(prefix).split("_")) for name, _ in self.values)
        return f"enum class {self.name} : int32_t {{ " + ", ".join(f"{name} = {n}" for name, (_, n) in zip(names, self.values)) + " };\n"  # noqa: B905  (Python 3.9)


@dataclass
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)


class Parser:
    """Parses one .proto file and adds its declarations to `messages` and `enums`."""

    def __init__(self, path: Path, messages: list[Message], enums: list[Enum]) -> None:
        self.path, self.messages, self.enums = path, messages, enums
        self.tokens = TOKEN.findall(re.sub(r"//.*", "", path.read_text(encoding="utf-8")))
        self.tokens.reverse()

    def take(self, *wanted: str) -> str:
        if not self.tokens:
            raise SystemExit(f"{self.path.name}: ends too early")
        token = str(self.tokens.pop())
        if wanted and token not in wanted:
            raise SystemExit(f"{self.path.name}: {token!r} found where one of {wanted} is expected")
        return token

    def parse(self) -> None:
        while self.tokens:
            word = self.take("syntax", "package", "import", "service", "message", "enum")
            if word == "message":
                self.message()
            elif word == "enum":
                self.enums.append(self.enum())
            elif word == "service":
                self.skip_block()
            else:
                while self.take() != ";":
                    pass

    def skip_block(self) -> None:
        depth = 0
        while (token := self.take()) != "}" or depth > 1:
            depth += {"{": 1, "}": -1}.get(token, 0)

    def enum(self) -> Enum:
        enum = Enum(self.take())
        self.take("{")
        while (name := self.take()) != "}":
            self.take("=")
            enum.values.append((name, int(self.take())))
            self.take(";")
        return enum

    def message(self) -> None:
        message = Message(self.take())
        self.take("{")
        self.body(message, "")
        self.messages.append(message)

    def body(self, message: Message, oneof: str) -> None:
        while (word := self.take()) != "}":
            if word == "enum":
                message.enums.append(self.enum())
            elif word == "oneof":
                name = self.take()
                self.take("{")
                self.body(message, name)
            elif word == "map":
                self.map(message)
            elif word == "reserved":
                while self.take() != ";":
                    pass
            else:
                self.field(message, word, oneof)

    def map(self, message: Message) -> None:
        for token in ("<", "string", ",", "string", ">"):
            self.take(token)
        entry = f"{message.name}Entry"
        self.messages.append(Message(entry, [Field("key", 1, "string", "string"), Field("value", 2, "string", "string")]))
        self.field(message, entry, "repeated")

    def field(self, message: Message, word: str, label: str) -> None:
        if word in ("repeated", "optional"):
            label, word = word, self.take()
        name = self.take()
        self.take("=")
        made = Field(name, int(self.take()), word, word, label)
        if self.take(";", "[") == "[":
            for token in ("lazy", "=", "true", "]", ";"):
                self.take(token)
            made.lazy = True
        message.fields.append(made)


def resolve(messages: list[Message], enums: list[Enum]) -> None:
    """Resolves the names of types into kinds and C++ types."""
    names = {message.name for message in messages}
    for message in messages:
        known = {enum.name for enum in [*enums, *message.enums]}
        for each in message.fields:
            if each.kind in NUMBERS:
                each.type = NUMBERS[each.kind]
            elif each.kind in TEXTS:
                each.type = "std::string_view"
            elif each.kind in known:
                each.kind = "enum"
            elif each.kind in names:
                each.kind, each.type = "message", "std::string_view" if each.lazy else each.type
            else:
                raise SystemExit(f"{message.name}.{each.name}: type {each.kind} is not supported")


def in_order(messages: list[Message]) -> list[Message]:
    """Orders the messages so that each comes after those it contains. None may contain itself: readers recurse with a bound."""
    by_name, done, open_ = {message.name: message for message in messages}, dict[str, Message](), set[str]()

    def visit(message: Message) -> None:
        if message.name in open_:
            raise SystemExit(f"{message.name} contains itself")
        open_.add(message.name)
        for each in message.fields:
            if each.kind == "message" and each.type in by_name:
                visit(by_name[each.type])
        open_.remove(message.name)
        done.setdefault(message.name, message)

    for message in messages:
        visit(message)
    return list(done.values())


def struct(message: Message) -> str:
    lines = [f"  {enum.text()}" for enum in message.enums]
    lines += [f"  {each.declared()}\n" for each in message.fields]
    return f"struct {message.name} {{\n{''.join(lines)}}};\n"


def read_case(message: Message, each: Field) -> str:
    target = f"to.{each.member}"
    others = (f"to.{other.member}.reset(); " for other in message.fields if other.label == each.label and other is not each)
    resets = "".join(others) if each.label not in ("", "repeated", "optional") else ""
    if each.label == "repeated":
        target += ".emplace_back()"
    elif each.may_be_absent and each.kind != "message":
        target += ".emplace()"
    get = "GetOnce" if each.lazy else "Get" + TEXTS.get(each.kind, "Fixed64" if each.kind == "fixed64" else "")
    lines = f"      case wire::Tag({each.number}, wire::Type::{each.wire_type}): {resets}in.{get}({target}); break;\n"
    if each.label == "repeated" and each.wire_type == "kVarint":
        lines += f"      case wire::Tag({each.number}, wire::Type::kBytes): in.GetPacked(to.{each.member}); break;\n"
    return lines


def put(each: Field) -> str:
    member = f"from.{each.member}"
    if each.lazy:  # present even if it is empty
        return f"  if ({member}.data() != nullptr) {{\n    const size_t before = out.bytes();\n    out.Raw({member});\n" + (
            f"    out.Nest({each.number}, before);\n  }}\n"
        )
    return f"  out.Put{'Fixed64' if each.kind == 'fixed64' else ''}({each.number}, {member});\n"


def functions(message: Message) -> str:
    cases = "".join(read_case(message, each) for each in message.fields)
    backwards = sorted(message.fields, key=lambda each: -each.number)
    puts = "".join(put(each) for each in backwards)
    name, unused = message.name, "" if message.fields else "[[maybe_unused]] "
    return f"""
bool Read(wire::Reader& in, {unused}{name}& to) {{
  while (in.Next()) {{
    switch (in.tag()) {{
{cases}      default: in.Skip();
    }}
  }}
  return in.End("{name}");
}}
template <class Out>
void Write({unused}wire::Writer<Out>& out, {unused}const {name}& from) {{
{puts}}}
template void Write(wire::Writer<wire::Counter>&, const {name}&);
template void Write(wire::Writer<wire::BackBuffer>&, const {name}&);
"""


HEADER = """// Generated by proto/wire/generate.py. Every struct is a message. Texts are views of the bytes that the message was read from, or
// of the caller's texts; an absent field has its default.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "proto/wire/reader.h"
#include "proto/wire/writer.h"

namespace %s {
"""


def main() -> None:
    namespace = sys.argv[1]
    header, body, *sources = map(Path, sys.argv[2:])
    messages, enums = list[Message](), list[Enum]()
    for source in sources:
        Parser(source, messages, enums).parse()
    resolve(messages, enums)
    messages = in_order(messages)
    declared = "".join(
        f"{struct(m)}bool Read(wire::Reader& in, {m.name}& to);\ntemplate <class Out>\nvoid Write(wire::Writer<Out>& out, const {m.name}& from);\n"
        for m in messages
    )
    end = f"}}  // namespace {namespace}\n"
    header.write_text(HEADER % namespace + "".join(enum.text() for enum in enums) + declared + end, encoding="utf-8")
    start = f'// Generated by proto/wire/generate.py.\n#include "{header.name}"\n\nnamespace {namespace} {{\n'
    body.write_text(start + "".join(functions(message) for message in messages) + end, encoding="utf-8")


if __name__ == "__main__":
    main()
