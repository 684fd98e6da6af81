"""A request to run a Python program, and the preparations before the program."""
import errno
import os
import struct

from .kernel import GROUP, ROOT, hear, write_file

INLINE = 64 << 10            # larger requests come in a memfd
NULL = "/dev/null"
WORKSPACE = ""               # set by the loader
SHELL_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENV = {b"PATH": SHELL_PATH, b"LANG": b"C.UTF-8", b"PYTHONDONTWRITEBYTECODE": b"1"}

# A request begins with: flags, seconds, columns, rows, stdout and stderr bytes
# to forward and of tail, number of arguments, key of the Python source.
REQUEST = struct.Struct(">HdHHqqqqI32s")
STDIN, NOTIFY, ANY_DIR = 1, 16, 32


class StartError(Exception):
    """The program can't be started as requested: the host maps kind."""


class Request:
    """A run frame's payload, as the process that becomes the program needs it."""

    def __init__(self, payload):
        fixed = REQUEST.unpack_from(payload)
        self.flags = fixed[0]
        words = payload[REQUEST.size:].split(b"\0")
        end = 1 + fixed[8]
        self.dir, self.argv, self.pairs = words[0], words[1:end], words[end:-1]

    def environment(self):
        env = dict(BASE_ENV)
        for pair in self.pairs:
            key, _, value = pair.partition(b"=")
            env[key] = value
        return env


def receive(sock):
    data, fds = hear(sock, INLINE + 1)
    if not fds:
        return data
    with open(fds[0], "rb") as f:
        return f.read()


def lower_rank():
    """Gives programs the lowest processor priority, and makes them the first choice of the
    out-of-memory killer; they may change the latter."""
    os.nice(10)
    write_file("/proc/self/oom_score_adj", b"1000")
    if ROOT:
        os.setresgid(GROUP, GROUP, GROUP)


def enter(directory, anywhere=False):
    """Enters a directory of the workspace with the program's own rights. Afterwards the
    kernel reports its real path, with all links resolved."""
    base = WORKSPACE
    try:
        os.chdir(base)
        if directory:
            os.chdir(directory)
            at = os.getcwd()
            if not anywhere and at != base and not at.startswith(base.rstrip("/") + "/"):
                raise StartError("escape", "it leads out of the workspace")
    except FileNotFoundError:
        raise StartError("not_found", "it does not exist")
    except NotADirectoryError:
        raise StartError("not_dir", "it is not a directory")
    except OSError as e:
        raise StartError("permission" if e.errno == errno.EACCES else "invalid", os.strerror(e.errno).lower())
