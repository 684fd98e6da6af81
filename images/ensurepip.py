"""Install pip into this Python, or into a virtual environment.

CPython's own ensurepip brings a copy of pip. The relocatable CPython of wisbox's
image comes without; this module has the same functions and takes the wheel of
Debian's package python3-pip-whl.
"""

import argparse
import os
import pathlib
import subprocess
import sys

__all__ = ["version", "bootstrap"]

_WHEELS = pathlib.Path("/usr/share/python-wheels")

# The child runs pip out of its own wheel: zipimport needs no installation.
_RUN_PIP = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('pip', run_name='__main__', alter_sys=True)"


def _wheel():
    wheels = sorted(_WHEELS.glob("pip-*.whl"))
    if not wheels:
        raise FileNotFoundError(f"no wheel of pip in {_WHEELS}: install the Debian package python3-pip-whl")
    return wheels[-1]


def version():
    """Return the version of the pip that bootstrap installs."""
    return _wheel().name.split("-")[1]


def bootstrap(*, root=None, upgrade=False, user=False, altinstall=False, default_pip=False, verbosity=0):
    """Install pip; the options are those of CPython's own ensurepip."""
    _bootstrap(root, upgrade, user, altinstall, default_pip, verbosity)


def _bootstrap(root, upgrade, user, altinstall, default_pip, verbosity):
    if altinstall and default_pip:
        raise ValueError("Cannot use altinstall and default_pip together")
    args = ["install", "--no-cache-dir", "--no-index", "--find-links", str(_WHEELS)]
    args += ["--root", root] if root else []
    args += ["--upgrade"] if upgrade else []
    args += ["--user"] if user else []
    args += ["-" + "v" * verbosity] if verbosity else []
    # What a user's settings say about installing is not meant for this.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env["PIP_CONFIG_FILE"] = os.devnull
    if not default_pip:
        env["ENSUREPIP_OPTIONS"] = "altinstall" if altinstall else "install"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _RUN_PIP, str(_wheel()), *args, "pip"]
    return subprocess.run(command, env=env, check=False).returncode


def _main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m ensurepip")
    parser.add_argument("--version", action="version", version=f"pip {version()}", help="show the version of the pip that is installed")
    parser.add_argument("-v", "--verbose", action="count", default=0, dest="verbosity", help="say more; up to three times")
    parser.add_argument("-U", "--upgrade", action="store_true", help="upgrade a pip that is there")
    parser.add_argument("--user", action="store_true", help="install for this user alone")
    parser.add_argument("--root", help="install below this directory")
    parser.add_argument("--altinstall", action="store_true", help="install only pipX.Y")
    parser.add_argument("--default-pip", action="store_true", help="install pip, too, beside pipX and pipX.Y")
    args = parser.parse_args(argv)
    return _bootstrap(args.root, args.upgrade, args.user, args.altinstall, args.default_pip, args.verbosity)


if __name__ == "__main__":
    sys.exit(_main())
