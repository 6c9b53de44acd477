# SPDX-License-Identifier: Apache-2.0
"""Collects the notices of other projects' code in our binaries, and an SBOM (CycloneDX) of the same list.

``notices.py BUILD OUTPUT MAP... [--root ROOT]`` reads what the linker and the compiler of a finished build have read:

- each MAP, the linker's map of the program that it is named after: object files, and archives of which it took a member;
- BUILD/build.ninja: the object files in our own archives;
- BUILD/.ninja_deps: the headers in each object file.

A file of another project belongs to a Debian package (``dpkg -S``) or to a Python distribution (its RECORD). Both have
their copyright and licence files beside them. ROOT has the libraries of another machine, with records of dpkg (deploy/aarch64/root). OUTPUT receives THIRD_PARTY_NOTICES and arraybridge.cdx.json.

A file without a known origin is named in THIRD_PARTY_NOTICES and on stderr. With ``--strict`` it is an error, and nothing
is written. Only a build on Debian can pass that.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import shutil
import struct
import subprocess
import sys
import textwrap
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

COMMON_LICENSES = Path("/usr/share/common-licenses")
# Every program is compiled with the headers of the system's interface, and contains nothing of the system by that.
INTERFACE_PACKAGES = {"libc6-dev", "linux-libc-dev"}
HERE = Path("/")  # the root of this machine's own packages
RULE = "=" * 100


@dataclass
class Component:
    """A project of which our programs contain something."""

    name: str
    version: str
    purl: str
    notices: list[str]
    archives: set[str] = field(default_factory=set)  # and object files, by name: libgrpc.a
    programs: set[str] = field(default_factory=set)

    @property
    def how(self) -> str:
        return ", ".join(sorted(self.archives)) if self.archives else "headers"

    @property
    def licenses(self) -> list[str]:
        """The short names of the licences, in the machine-readable format of Debian's copyright files."""
        found = re.findall(r"^License:[ \t]*(\S.*)$", "\n".join(self.notices), re.MULTILINE)
        return sorted({name.strip() for name in found})


class Build:
    """What one build tree knows of its programs."""

    def __init__(self, folder: Path, root: Path = HERE) -> None:
        self.folder, self.root = folder.resolve(), root.resolve()
        cache = (self.folder / "CMakeCache.txt").read_text()
        self.source = Path(_value(cache, "CMAKE_HOME_DIRECTORY")).resolve()
        self._objects_in = dict(self._own_archives())
        self._headers_of = headers_by_object((self.folder / ".ninja_deps").read_bytes())

    def _own_archives(self) -> Iterator[tuple[str, list[str]]]:
        for line in (self.folder / "build.ninja").read_text().splitlines():
            match = re.match(r"build (\S+\.a): \S+ ([^|]*)", line)
            if match:
                yield match[1], match[2].split()

    def is_ours(self, path: Path) -> bool:
        if self.root != HERE and path.is_relative_to(self.root):
            return False  # also where the root lies in our tree
        return path.is_relative_to(self.folder) or (path.is_relative_to(self.source) and "site-packages" not in path.parts)

    def files_of(self, linker_map: Path) -> tuple[set[Path], set[Path]]:
        """Other projects' archives and object files in the program, and their headers in its object files."""
        objects, members = linked(linker_map.read_text(errors="replace"))
        for archive, names in members.items():
            objects |= {each for each in self._objects_in.get(archive, ()) if Path(each).name in names}
        binary = {self._absolute(each) for each in objects | set(members)}
        headers = {self._absolute(header) for each in objects for header in self._headers_of.get(each, ())}
        return ({path for path in binary if not self.is_ours(path)}, {path for path in headers if not self.is_ours(path)})

    def _absolute(self, path: str) -> Path:
        return (self.folder / path).resolve()


def _value(cache: str, name: str) -> str:
    found = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
    if found is None:
        raise SystemExit(f"notices: CMakeCache.txt has no {name}")
    return found[1]


def linked(linker_map: str) -> tuple[set[str], dict[str, set[str]]]:
    """Object files in a program, and the members that it has of each archive. REQUIRES: a map of GNU ld or gold."""
    members: dict[str, set[str]] = defaultdict(set)
    head = linker_map.split("Discarded input sections", 1)[0]
    for archive, member in re.findall(r"^(/?\S+\.a)\(([^()]+)\)", head, re.MULTILINE):
        members[archive].add(member)
    objects = set(re.findall(r"^LOAD (\S+\.o)$", linker_map, re.MULTILINE))
    if not objects:
        raise SystemExit("notices: a map names no object file: is the linker another one than GNU ld?")
    return objects, members


def headers_by_object(log: bytes) -> dict[str, list[str]]:
    """Ninja's log of dependencies, version 4: records of paths, which are numbered in their order, and of objects."""
    start = b"# ninjadeps\n" + struct.pack("<i", 4)
    if not log.startswith(start):
        raise SystemExit("notices: .ninja_deps has another version than 4, which Ninja 1.10 and newer write")
    paths: list[str] = []
    found: dict[str, list[str]] = {}
    at = len(start)
    while at + 4 <= len(log):
        (size,) = struct.unpack_from("<I", log, at)
        record = log[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        at += 4 + len(record)
        if size >> 31:
            numbers = struct.unpack(f"<{len(record) // 4}i", record)
            found[paths[numbers[0]]] = [paths[number] for number in numbers[3:]]  # after the object and its time
        else:
            paths.append(record[:-4].rstrip(b"\0").decode())
    return found


def dpkg_query(root: Path, *words: str) -> list[str]:
    return ["dpkg-query", f"--admindir={root}/var/lib/dpkg", *words]


def debian_packages(paths: Iterable[Path], root: Path) -> dict[Path, str]:
    """The Debian package of each path, by the records of a root; none where there is no dpkg."""
    if shutil.which("dpkg") is None:
        return {}
    found: dict[Path, str] = {}
    asked = {str(path): path for path in paths}
    asked |= {name.removeprefix("/usr"): path for name, path in asked.items() if name.startswith("/usr/lib")}
    names = sorted(asked)
    for start in range(0, len(names), 2000):
        told = subprocess.run(dpkg_query(root, "-S", *names[start : start + 2000]), capture_output=True, text=True).stdout
        for packages, name in re.findall(r"^(?!diversion )([^/]+): (/.*)$", told, re.MULTILINE):
            if name in asked:
                found[asked[name]] = packages.split(",")[0].strip()
    return found


def debian_component(package: str, root: Path) -> Component:
    query = dpkg_query(root, "-W", "-f=${source:Package} ${source:Version}\n", package)
    name, version = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split()
    notice = root / "usr/share/doc" / package.split(":")[0] / "copyright"
    system = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    purl = f"pkg:deb/{system.get('ID', 'debian')}/{quote(name)}@{quote(version)}?arch=source"
    if "VERSION_ID" in system:
        purl += f"&distro={system['ID']}-{system['VERSION_ID']}"
    texts = [notice.read_text(errors="replace")] if notice.exists() else []
    return Component(name, version, purl, texts)


def python_distributions(paths: Iterable[Path]) -> dict[Path, importlib.metadata.Distribution]:
    """The Python distribution of each path below a site-packages."""
    found: dict[Path, importlib.metadata.Distribution] = {}
    owners: dict[Path, dict[Path, importlib.metadata.Distribution]] = {}
    for path in paths:
        site = next((folder for folder in path.parents if folder.name in ("site-packages", "dist-packages")), None)
        if site is None:
            continue
        if site not in owners:
            installed = importlib.metadata.distributions(path=[str(site)])
            owners[site] = {site / str(file): each for each in installed for file in each.files or ()}
        if path in owners[site]:
            found[path] = owners[site][path]
    return found


def python_component(distribution: importlib.metadata.Distribution) -> Component:
    named = re.compile(r"\.dist-info/(licenses/.*|(LICEN[CS]E|COPYING|NOTICE)[^/]*)$")
    files = sorted(str(file) for file in distribution.files or () if named.search(str(file)))
    texts = [Path(str(distribution.locate_file(file))).read_text(errors="replace") for file in files]
    name = distribution.metadata["Name"]
    return Component(name, distribution.version, f"pkg:pypi/{name.lower().replace('_', '-')}@{distribution.version}", texts)


def collect(build: Build, maps: Iterable[Path]) -> tuple[list[Component], list[str]]:
    """The components of the programs by name; and the files whose notice was not found."""
    binary: dict[Path, set[str]] = defaultdict(set)
    headers: dict[Path, set[str]] = defaultdict(set)
    for linker_map in maps:
        of_program = build.files_of(linker_map)
        for path in of_program[0]:
            binary[path].add(linker_map.stem)
        for path in of_program[1]:
            headers[path].add(linker_map.stem)
    found_in = {path: build.root if path.is_relative_to(build.root) else HERE for path in [*binary, *headers]}
    packages: dict[Path, str] = {}
    for place in set(found_in.values()):
        packages |= debian_packages([path for path, where in found_in.items() if where == place], place)
    distributions = python_distributions([path for path in [*binary, *headers] if path not in packages])
    components: dict[str, Component] = {}
    unknown: set[str] = set()
    for path, users in [*binary.items(), *headers.items()]:
        package = packages.get(path, "")
        if path in headers and package.split(":")[0] in INTERFACE_PACKAGES:
            continue
        origin = package or (distributions[path].metadata["Name"] if path in distributions else "")
        if not origin:
            unknown.add(path.name if path in binary else f"{path.parent.name}/{path.name}")
            continue
        if origin not in components:
            components[origin] = debian_component(package, found_in[path]) if package else python_component(distributions[path])
        components[origin].programs |= users
        if path in binary:
            components[origin].archives.add(path.name)
    merged = merge(components.values())
    return merged, sorted(unknown | {f"{each.name} (has no copyright file)" for each in merged if not each.notices})


def merge(components: Iterable[Component]) -> list[Component]:
    """One component for all packages of a source."""
    by_purl: dict[str, Component] = {}
    for each in sorted(components, key=lambda each: each.purl):
        known = by_purl.setdefault(each.purl, each)
        if known is not each:
            known.notices += [text for text in each.notices if text not in known.notices]
            known.archives |= each.archives
            known.programs |= each.programs
    return sorted(by_purl.values(), key=lambda each: each.name)


def notices_text(version: str, programs: list[str], components: list[Component], unknown: list[str]) -> str:
    """The notices, and the licences to which they refer by path."""
    lines = [f"Third-party software in arraybridge {version}", ""]
    lines += ["arraybridge itself is licensed under the Apache License, version 2.0. Its binaries contain parts of the projects"]
    lines += ["below: archives that were linked, and headers that were compiled. The notices of each project follow the list.", ""]
    lines += [f"Binaries: {', '.join(programs)}", ""]
    for each in components:
        lines += [f"* {each.name} {each.version}"]
        for told in (f"in: {', '.join(sorted(each.programs))}", f"as: {each.how}"):
            lines += textwrap.wrap(told, 100, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
    if unknown:
        lines += ["", "The build found no notice for these files:", *(f"* {name}" for name in unknown)]
    texts = [text for each in components for text in each.notices]
    for each in components:
        lines += ["", RULE, f"{each.name} {each.version}", RULE, "", "\n\n".join(each.notices).rstrip()]
    named = {match.rstrip(".") for text in texts for match in re.findall(rf"{COMMON_LICENSES}/([\w.+-]+)", text)}
    for name in sorted(named):
        if (COMMON_LICENSES / name).exists():
            lines += ["", RULE, f"The text to which a notice above refers as {COMMON_LICENSES}/{name}", RULE, ""]
            lines += [(COMMON_LICENSES / name).read_text(errors="replace").rstrip()]
    return "\n".join(lines) + "\n"


def sbom(version: str, components: list[Component]) -> str:
    """CycloneDX 1.5 in JSON. The same components give the same text: it has no time, and a serial number from its content."""
    ours = {"type": "application", "bom-ref": "arraybridge", "name": "arraybridge", "version": version}
    ours |= {"purl": f"pkg:pypi/arraybridged@{version}"}
    listed = []
    for each in components:
        properties = [{"name": "arraybridge:in", "value": program} for program in sorted(each.programs)]
        properties += [{"name": "arraybridge:as", "value": how} for how in sorted(each.archives) or ["headers"]]
        entry = {"type": "library", "bom-ref": each.purl, "name": each.name, "version": each.version, "purl": each.purl}
        licenses = [{"license": {"name": name}} for name in each.licenses]
        listed.append({**entry, **({"licenses": licenses} if licenses else {}), "properties": properties})
    references = [each.purl for each in components]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**ours, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": listed,
        "dependencies": [{"ref": "arraybridge", "dependsOn": references}, *({"ref": each} for each in references)],
    }
    content = hashlib.sha256(json.dumps(document).encode()).hexdigest()
    serial = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return json.dumps({"bomFormat": "CycloneDX", "serialNumber": serial, **document}, indent=2) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("build", type=Path, metavar="BUILD")
    parser.add_argument("output", type=Path, metavar="OUTPUT")
    parser.add_argument("maps", type=Path, nargs="+", metavar="MAP")
    parser.add_argument("--root", type=Path, default=HERE, help="of another machine's libraries, with dpkg's records of them")
    parser.add_argument("--strict", action="store_true", help="fail if a file has no notice")
    options = parser.parse_args()
    build = Build(options.build, options.root)
    components, unknown = collect(build, options.maps)
    for name in unknown:
        print(f"notices: {name}: no notice was found", file=sys.stderr)
    if unknown and options.strict:
        return 1
    version = _value((build.folder / "CMakeCache.txt").read_text(), "CMAKE_PROJECT_VERSION")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "THIRD_PARTY_NOTICES").write_text(notices_text(version, [each.stem for each in options.maps], components, unknown))
    (options.output / "arraybridge.cdx.json").write_text(sbom(version, components))
    return 0


if __name__ == "__main__":
    sys.exit(main())
