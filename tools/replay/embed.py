# SPDX-License-Identifier: Apache-2.0
"""embed.py INPUT OUTPUT NAME: a file as a C array with a NUL behind it."""
import sys

source, target, name = sys.argv[1:]
data = open(source, "rb").read() + b"\0"
with open(target, "w") as out:
    out.write(f"/* Made from a file by embed.py. */\nstatic const unsigned char {name}[] = {{\n")
    for i in range(0, len(data), 24):
        out.write(",".join(map(str, data[i:i + 24])) + ",\n")
    out.write("};\n")
