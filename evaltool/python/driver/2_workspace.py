# The helpers for evaluated code: read_text, write_text and list_files. Writes are only queued; the host applies them
# after the call has succeeded.

import errno
import os
import stat

READ_BYTES = 64 << 20
WRITE_CHARS = 48_000
QUEUED_FILES = 64
LISTED_FILES = 10_000
MODES = ("create", "overwrite", "append")


def clean_path(path):
    """Returns the path relative to the workspace, by the rules of the file tools."""
    if not isinstance(path, str):
        raise TypeError(f"a path must be a str, not {type(path).__name__}")
    segments = [s.strip(" ") for s in path.split("/")]
    segments = [s for s in segments if s]
    if segments[:1] == ["workspace"]:
        segments = segments[1:]
    for segment in segments:
        if segment in (".", "..") or not segment.isascii() or not segment.isprintable():
            raise ValueError(f"{path!r}: a path is made of ASCII names, without '.' and '..'")
        if len(segment) > 80:
            raise ValueError("a segment of a path has at most 80 characters")
    if len(segments) > 16:
        raise ValueError("a path has at most 16 segments")
    return "/".join(segments)


def file_path(path):
    clean = clean_path(path)
    if not clean:
        raise ValueError("a path must name a file, not the workspace itself")
    return clean


class Workspace:
    """The files at root, a real path, with the writes of one call queued on top."""

    def __init__(self, root):
        self.root = root
        self.queue = {}

    def helpers(self):
        found = {"read_text": self.reader(), "write_text": self.writer(), "list_files": self.lister()}
        for name, helper in found.items():
            helper.__qualname__ = name  # for messages and reprs
        return found

    # Plain functions, not bound methods: they don't refer to the driver.

    def reader(self):
        def read_text(path):
            """The whole text of a workspace file, queued writes included."""
            return self.read(file_path(path))

        return read_text

    def writer(self):
        def write_text(path, content, mode="overwrite"):
            """Queue a write of a workspace file: mode is create, overwrite or
            append. It happens when the call has succeeded."""
            self.write(file_path(path), content, mode)

        return write_text

    def lister(self):
        def list_files(path="/"):
            """The sorted paths of all files below a workspace directory."""
            return self.list(clean_path(path))

        return list_files

    def read(self, path):
        mode, content = self.queue.get(path, ("append", ""))
        if mode != "append":
            return content
        try:
            return self.stored(path) + content
        except FileNotFoundError:
            if path in self.queue:
                return content
            raise

    def stored(self, path):
        fd = os.open(self.real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            if stat.S_ISDIR(info.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            with open(fd, "rb", closefd=False) as file:
                data = file.read(READ_BYTES + 1)
        finally:
            os.close(fd)
        if len(data) > READ_BYTES:
            raise OSError(errno.EFBIG, f"more than {READ_BYTES >> 20} MiB", path)
        return data.decode()

    def real(self, path):
        """Resolves links in path, and refuses one that leaves the workspace."""
        real = os.path.realpath(os.path.join(self.root, path))
        if real != self.root and not real.startswith(self.root.rstrip("/") + "/"):
            raise PermissionError(errno.EACCES, "the path leaves the workspace", path)
        if not os.path.lexists(real):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return real

    def exists(self, path):
        return path in self.queue or os.path.lexists(os.path.join(self.root, path))

    def write(self, path, content, mode):
        if not isinstance(content, str):
            raise TypeError(f"content must be a str, not {type(content).__name__}")
        if mode not in MODES:
            raise ValueError(f"mode must be create, overwrite or append, not {mode!r}")
        if mode == "create" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        content.encode()  # a lone surrogate can't be stored: raise here
        before, text = self.queue.get(path, (mode, ""))
        content = text + content if mode == "append" else content
        if len(content) > WRITE_CHARS:
            raise ValueError(f"one file takes at most {WRITE_CHARS} characters a call")
        if path not in self.queue and len(self.queue) >= QUEUED_FILES:
            raise ValueError(f"one call writes at most {QUEUED_FILES} files")
        self.queue[path] = (merged(before, mode), content)

    def list(self, path):
        found = {name for name in self.queue if not path or name.startswith(path + "/")}
        if found and not self.exists(path):
            return sorted(found)
        top = self.real(path) if path else self.root
        if not os.path.isdir(top):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        for folder, _, names in os.walk(top):
            below = os.path.relpath(folder, top)
            for name in names:
                found.add(os.path.normpath(os.path.join(path, below, name)))
            if len(found) > LISTED_FILES:
                raise ValueError(f"more than {LISTED_FILES} files: name a directory further down")
        return sorted(found)

    def queued(self):
        # The full path: one that begins with "workspace/" would be cleaned twice.
        return [{"path": "/workspace/" + p, "mode": mode, "content": text} for p, (mode, text) in self.queue.items()]


def merged(before, mode):
    """Merges two writes of a file into one: a new file stays new, and complete content
    stays complete after an append."""
    return before if before == "create" or mode == "append" else mode
