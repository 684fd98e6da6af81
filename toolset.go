package wisbox

import (
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

// ToolSet describes the tools without a session: names, texts and schemas, for
// listing. Its tools must not be called.
func ToolSet() *tool.Set {
	set, _ := ToolProfile("")
	return set
}

// ToolProfile is ToolSet under the names and in the shapes that some models were
// trained on, see package profile. An unknown profile is invalid.
func ToolProfile(name string) (*tool.Set, error) {
	s := &services{}
	var err error
	if s.eval, err = evaltool.New(&evaltool.Options{Files: s.files}); err != nil {
		return nil, err
	}
	if s.texts, err = rlm.New(nil); err != nil {
		return nil, err
	}
	return s.profile(name)
}
