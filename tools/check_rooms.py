#!/usr/bin/env python3
"""Compares the #include lines of src/ and apps/ with the tables of docs/rooms.md, and file sizes with its limits."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LOOSE_INLINE = re.compile(r"^\s*(inline\b|template\s*<|constexpr\s+[\w:<> ]+\()")
KERNEL_FOLDER = re.compile(r"^src/cpu/(avx2|avx512|amx|neon|neon_dot)/")
EXTENDED = {"cpu/amx/": "cpu/avx512/"}    # kernel folder: the one whose headers it may include too
LIMITS = {".h": 200, ".cc": 600, ".c": 600}


def read_tables(path):
    """-> {room: set of rooms it may include}, system headers of kernel files, kernel-safe headers and folders"""
    rooms, system, safe = {}, set(), set()
    heading = None
    for line in open(path, encoding="utf-8"):
        if not line.startswith("|"):
            heading = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if heading is None:
            heading = cells[0]
        elif not set(cells[0]) <= set("-:"):
            name = cells[0].strip("`")
            if heading == "room":
                rooms[name] = {room.strip() for room in cells[1].split(",") if room.strip()}
            elif heading == "allowed in kernel files":
                system.add(name.strip("<>"))
            elif heading == "kernel-safe header or folder":
                safe.add(name)
    return rooms, system, tuple(safe)


def sources():
    for top in ("src", "apps"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if os.path.splitext(name)[1] in LIMITS:
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def check_file(path, tables, complain):
    rooms, system, safe = tables        # str.startswith takes the tuple of safe headers and folders as it is
    lines = open(os.path.join(ROOT, path), encoding="utf-8").read().splitlines()
    limit = LIMITS[os.path.splitext(path)[1]]
    if len(lines) > limit and not any("Generated" in line for line in lines[:3]):
        complain(f"{path}: {len(lines)} lines, at most {limit} are allowed")

    room = "apps" if path.startswith("apps/") else path.split("/")[1]
    if room not in rooms:
        complain(f"{path}: room {room} is not in docs/rooms.md")
        return
    own_folder = os.path.dirname(path)[len("src/"):] + "/"
    own = tuple(folder for folder in (own_folder, EXTENDED.get(own_folder)) if folder)
    kernel = bool(KERNEL_FOLDER.match(path)) and not path.endswith("_test.cc")
    kernel_safe = kernel or path[len("src/"):].startswith(safe)
    unnamed = False                     # inside of an unnamed namespace
    for number, line in enumerate(lines, 1):
        if line in ("namespace {", "}  // namespace"):
            unnamed = line.endswith("{")
        if kernel_safe and path.endswith(".h") and not unnamed and LOOSE_INLINE.match(line):
            complain(f"{path}:{number}: what a kernel file's header defines must have internal linkage")
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, target = match.groups()
        if bracket == "<":
            if kernel_safe and target not in system:
                complain(f"{path}:{number}: <{target}> is not allowed in kernel files and what they include")
            continue
        other = target.split("/")[0] if "/" in target else ""
        if other != room and other not in rooms[room] and not (room == "apps" and not os.path.dirname(target)):
            allowed = ", ".join(sorted(rooms[room])) or "nothing else"
            complain(f'{path}:{number}: room {room} may not include "{target}" (allowed: {allowed})')
        elif kernel_safe and not target.startswith(safe) and not (kernel and target.startswith(own)):
            complain(f'{path}:{number}: "{target}" is not kernel-safe')


def main():
    tables = read_tables(os.path.join(ROOT, "docs", "rooms.md"))
    problems = [] if tables[0] else ["docs/rooms.md: no table of rooms found"]
    files = list(sources())
    for path in files:
        check_file(path, tables, problems.append)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(files)} files follow docs/rooms.md")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
