"""Give Debian's setuptools the options that it expects of Debian's own Python.

setuptools imports this module where there is one. Debian's wheel of it asks the
install command for them, and no other Python has them.
"""

import distutils.command.install

distutils.command.install.install.install_layout = None
distutils.command.install.install.prefix_option = None
