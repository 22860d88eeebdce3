# SPDX-License-Identifier: Apache-2.0
"""embed.py INPUT OUTPUT NAME: a file as a C array with a NUL behind it.

Of a page, NAME_SCRIPT and NAME_STYLE are what a Content-Security-Policy calls its one inline script and its one style sheet.
"""
import base64
import hashlib
import re
import sys

source, target, name = sys.argv[1:]
data = open(source, "rb").read()
with open(target, "w") as out:
    out.write(f"/* Made from a file by embed.py. */\nstatic const unsigned char {name}[] = {{\n")
    whole = data + b"\0"
    for i in range(0, len(whole), 24):
        out.write(",".join(map(str, whole[i:i + 24])) + ",\n")
    out.write("};\n")
    for tag in (b"script", b"style"):
        found = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), data, re.S)
        if len(found) == 1:
            digest = base64.b64encode(hashlib.sha256(found[0]).digest()).decode()
            out.write(f"#define {name}_{tag.decode().upper()} \"'sha256-{digest}'\"\n")
