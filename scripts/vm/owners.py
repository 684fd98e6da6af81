"""Gives a tree that root made the owners that Podman of user 1000, whose range begins at 100000, expects."""
import os
import sys

for top, folders, files in os.walk(sys.argv[1], topdown=False):
    links = [name for name in folders if os.path.islink(os.path.join(top, name))]
    for path in [os.path.join(top, name) for name in files + links] + [top]:
        was = os.lstat(path)
        uid, gid = (1000 if n == 0 else 99999 + n for n in (was.st_uid, was.st_gid))
        os.chown(path, uid, gid, follow_symlinks=False)
        if not os.path.islink(path):
            os.chmod(path, was.st_mode & 0o7777)  # chown takes set-id bits away
