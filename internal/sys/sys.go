// Package sys makes the system calls that not every system has, or not under the same name. Local
// sessions of the root package need Linux; a client of another machine works on files too, and runs
// on other systems.
//
// A call that the system lacks returns an error; each caller then has another way.
package sys

import (
	_ "github.com/wisbox/wisbox/internal/sys/internal/needs_linux_or_macos_see_docs_install" // a build for another system ends here
)
