# Before the driver: modules that its imports need and WebAssembly lacks.

import io
import os
import sys
import types

for name in ("O_NONBLOCK", "O_CLOEXEC"):
    if not hasattr(os, name):
        setattr(os, name, 0)

STAND_INS = []
for name in ("fcntl",):
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = types.ModuleType(name)
        STAND_INS.append(name)
