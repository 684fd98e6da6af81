"""The numbers of the protocol; package agent (doc.go) says what they mean."""
import struct

VERSION = 3
MAX_FRAME = 1 << 20          # bytes of payload, both directions
CHUNK = 64 << 10             # bytes of data in one frame
WINDOW = 256 << 10           # bytes in flight on one channel
HEAD = struct.Struct(">IBI")                     # length, type, call

RUN, KILL, SIGNAL, RESIZE, SOURCE, PING, LIMITS, MOVE = range(0x01, 0x09)
DATA, CREDIT, TAIL = 0x10, 0x20, 0x30            # | channel
HELLO, PONG, LIMITS_ARE, STARTED, EXIT = range(0x41, 0x46)
STDIN, STDOUT, STDERR, CTL_IN, CTL_OUT = range(5)

# A request begins with: flags, seconds, columns, rows, stdout and stderr bytes
# to forward and of tail, number of arguments, key of the Python source.
REQUEST = struct.Struct(">BdHHqqqqI32s")
WITH_STDIN, WITH_CONTROL, WITH_CTL_IN, WITH_TTY, NOTIFY = 1, 2, 4, 8, 16

# How a program ended: wait status, user and system seconds, KiB of its largest
# resident set, whether an orphan of it was killed.
REPORT = struct.Struct("<iddq?")


class Lost(Exception):
    """The stream broke or broke the protocol: everything ends."""


def to_json(value):
    """Module json costs each process a megabyte."""
    if isinstance(value, dict):
        return "{%s}" % ",".join('%s:%s' % (to_json(str(k)), to_json(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join(map(to_json, value))
    if isinstance(value, str):
        return '"%s"' % "".join(c if " " <= c <= "~" and c not in '"\\' else escape(c) for c in value)
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)


def escape(c):
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join("\\u%02x%02x" % (units[i], units[i + 1]) for i in range(0, len(units), 2))
