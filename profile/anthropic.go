package profile

import "github.com/wisbox/wisbox/tool"

// anthropic is the client-side tools that Anthropic's models know.
func (a *adapters) anthropic() []tool.Tool {
	return []tool.Tool{(&bash{to: a.to}).tool(), (&editor{to: a.to}).tool()}
}
