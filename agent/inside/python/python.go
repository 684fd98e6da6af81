// Package python is the template of Python programs: a Python process that the agent
// starts, which executes a trusted source once and then forks a monitor for each
// message of the agent. Each monitor forks the next call's process before the call arrives. It uses package monitor's
// messages; requests reach it unchanged.
//
// It needs Python 3.9 or newer, and only the standard library.
package python

import (
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed py/*.py
var sources embed.FS

// modules lists the modules in order of execution: each imports only earlier ones.
var modules = []string{"kernel", "monitor", "request", "template"}

// Descriptors of a template.
const (
	Control = 3 // its socket
	Source  = 4 // the file with [Program]
)

// Argv returns the arguments that execute the content of descriptor [Source]. -I ignores the environment and the
// current directory, -S the site packages.
func Argv(python string) []string {
	return []string{python, "-I", "-S", "-c", "exec(compile(open(4, 'rb', closefd=True).read(), 'wisbox-agent', 'exec'), {'__name__': 'wisbox_agent'})"}
}

// loader turns the modules of MODULES into the package wisbox_agent, and starts it.
const loader = `import sys
package = sys.modules['wisbox_agent'] = type(sys)('wisbox_agent')
package.__path__ = []
for name, text in MODULES:
 full = 'wisbox_agent.' + name
 module = sys.modules[full] = type(sys)(full)
 module.__package__ = 'wisbox_agent'
 setattr(package, name, module)
 exec(compile(text, full, 'exec'), module.__dict__)
del MODULES, text
import os
package.request.WORKSPACE = os.path.realpath(WORKSPACE)
package.template.template(NAME, SOURCE)
`

// Program returns the Python program of the template for a source. JSON of ASCII strings is also valid Python.
func Program(workspace, name string, source []byte) ([]byte, error) {
	pairs := make([][2]string, len(modules))
	for i, module := range modules {
		text, err := sources.ReadFile("py/" + module + ".py")
		if err != nil {
			return nil, err
		}
		pairs[i] = [2]string{module, string(text)}
	}
	var encoded [4][]byte
	for i, v := range []any{pairs, workspace, name, string(source)} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		encoded[i] = text
	}
	return fmt.Appendf(nil, "MODULES = %s\nWORKSPACE, NAME, SOURCE = %s, %s, %s\n%s", encoded[0], encoded[1], encoded[2], encoded[3], loader), nil
}
