#!/usr/bin/env python3
"""A reader of GGUF version 3 that shares nothing with the program: checks structure, lists keys and tensors.

Usage: read_gguf.py FILE... (prints a JSON object for each); as a module: read(path) -> Gguf.
"""
import json
import os
import struct
import sys

# type id: (name, values a block, bytes a block)
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
         12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66),
         18: ("IQ3_XXS", 256, 98), 20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1),
         30: ("BF16", 1, 2), 39: ("MXFP4", 32, 17)}
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Broken(Exception):
    pass


class Cursor:
    def __init__(self, file):
        self.file = file

    def take(self, count):
        data = self.file.read(count)
        if len(data) != count:
            raise Broken(f"the file ends within a header of {count} bytes")
        return data

    def scalar(self, pattern):
        return struct.unpack(pattern, self.take(struct.calcsize(pattern)))[0]

    def string(self):
        return self.take(self.scalar("<Q")).decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, count = self.scalar("<I"), self.scalar("<Q")
            if element in (8, 9):
                return [self.value(element) for _ in range(count)]
            code = SCALARS[element]
            return list(struct.unpack(f"<{count}{code[1]}", self.take(count * struct.calcsize(code))))
        return self.scalar(SCALARS[kind])


class Gguf:
    """keys: name -> value; key_types: name -> id; tensors: name -> dict; data_start, alignment, size"""

    def __init__(self, path):
        self.path, self.keys, self.key_types, self.tensors = path, {}, {}, {}
        self.size = os.path.getsize(path)
        with open(path, "rb") as file:
            self.read_header(Cursor(file))
        self.check_layout()

    def read_header(self, cursor):
        if cursor.take(4) != b"GGUF" or cursor.scalar("<I") != 3:
            raise Broken("no GGUF of version 3")
        tensors, keys = cursor.scalar("<Q"), cursor.scalar("<Q")
        for _ in range(keys):
            name, kind = cursor.string(), cursor.scalar("<I")
            if name in self.keys:
                raise Broken(f"key {name} is there twice")
            self.keys[name], self.key_types[name] = cursor.value(kind), kind
        for _ in range(tensors):
            name, rank = cursor.string(), cursor.scalar("<I")
            dims = [cursor.scalar("<Q") for _ in range(rank)]
            kind, offset = cursor.scalar("<I"), cursor.scalar("<Q")
            if name in self.tensors:
                raise Broken(f"tensor {name} is there twice")
            if kind not in TYPES:
                raise Broken(f"tensor {name} has the unknown type {kind}")
            self.tensors[name] = {"type": TYPES[kind][0], "type_id": kind, "dims": dims, "offset": offset}
        self.alignment = self.keys.get("general.alignment", 32)
        end = cursor.file.tell()
        self.data_start = (end + self.alignment - 1) // self.alignment * self.alignment
        if any(cursor.take(self.data_start - end)):
            raise Broken("the padding behind the header is not zero")

    def check_layout(self):
        end = 0
        for name, tensor in sorted(self.tensors.items(), key=lambda item: item[1]["offset"]):
            _, block, block_bytes = TYPES[tensor["type_id"]]
            if tensor["dims"][0] % block:
                raise Broken(f"tensor {name}: rows of {tensor['dims'][0]} are no whole blocks of {block}")
            tensor["bytes"] = block_bytes
            for axis, dim in enumerate(tensor["dims"]):
                tensor["bytes"] *= dim // block if axis == 0 else dim
            if tensor["offset"] != end:
                raise Broken(f"tensor {name} begins at {tensor['offset']}, expected {end}")
            end = (tensor["offset"] + tensor["bytes"] + self.alignment - 1) // self.alignment * self.alignment
        if self.data_start + end != self.size:
            raise Broken(f"the file has {self.size} bytes, its tensors end at {self.data_start + end}")

    def data(self, name):
        tensor = self.tensors[name]
        with open(self.path, "rb") as file:
            file.seek(self.data_start + tensor["offset"])
            return file.read(tensor["bytes"])


def read(path):
    return Gguf(path)


def main():
    for path in sys.argv[1:]:
        gguf = Gguf(path)
        json.dump({"path": path, "alignment": gguf.alignment, "data_start": gguf.data_start, "size": gguf.size,
                   "keys": {name: value if not isinstance(value, list) else f"{len(value)} values"
                            for name, value in gguf.keys.items()},
                   "tensors": gguf.tensors}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
