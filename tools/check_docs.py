#!/usr/bin/env python3
"""Checks that every relative link in the repository's Markdown files leads to a file, and to a heading if it has one,
and that the tests named in docs/known_faults.md exist."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCE = re.compile(r"^\s*(```|~~~)")


def prose_lines(path):
    """(number, line) outside of code blocks, with code spans blanked"""
    fenced = False
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", lambda span: " " * len(span.group()), line)


def anchors(path):
    """anchors of a page's headings, as GitHub forms them"""
    found, fenced = {}, False
    for line in open(path, encoding="utf-8"):
        if FENCE.match(line):
            fenced = not fenced
        match = None if fenced else re.match(r"#+\s+(.*?)\s*#*$", line)
        if match:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            count = found.get(slug, 0)
            found[slug] = count + 1
            if count:
                found[f"{slug}-{count}"] = 1
    return found


def check(page, complain):
    path = os.path.join(ROOT, page)
    for number, line in prose_lines(path):
        for target in LINK.findall(line):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            base = ROOT if name.startswith("/") else os.path.dirname(path)
            file = os.path.normpath(os.path.join(base, name.lstrip("/"))) if name else path
            if not os.path.exists(file):
                complain(f"{page}:{number}: {target}: no such file")
            elif anchor and file.endswith(".md") and anchor not in anchors(file):
                complain(f"{page}:{number}: {target}: no such heading")


def check_named_tests(page, complain):
    """`Suite.Name`, `test_name` and paths of tests in a table of known faults"""
    sources = ""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(("build", ".git", "node_modules"))]
        for name in names:
            if re.search(r"_test\.(cc|py)$", name):
                sources += open(os.path.join(folder, name), encoding="utf-8").read()
    for number, line in enumerate(open(os.path.join(ROOT, page), encoding="utf-8"), 1):
        for suite, name in re.findall(r"`([A-Z]\w+)\.([A-Z]\w+)`", line):
            if not re.search(rf"TEST\w*\({suite}, {name}\)", sources):
                complain(f"{page}:{number}: there is no test {suite}.{name}")
        for name in re.findall(r"`(test_\w+)`", line):
            if f"def {name}(" not in sources:
                complain(f"{page}:{number}: there is no test {name}")


def main():
    pages = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(("build", ".git", "node_modules"))]
        pages += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    problems = []
    for page in sorted(pages):
        check(page, problems.append)
    check_named_tests("docs/known_faults.md", problems.append)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"links of {len(pages)} pages lead somewhere")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
