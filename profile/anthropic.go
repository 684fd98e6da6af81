package profile

import "github.com/wisbox/wisbox/tool"

// anthropic returns the client-side tools that Anthropic's models know.
func (a *adapters) anthropic() []tool.Tool {
	a.shell = &bash{to: a.to}
	return []tool.Tool{a.shell.tool(), (&editor{to: a.to}).tool()}
}
