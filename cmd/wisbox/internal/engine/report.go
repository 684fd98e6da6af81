package engine

import (
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// Report is the end of a command that a front has done, for the engine to explain: it knows the words of all commands.
type Report struct {
	Command string          `json:"command"` // exec or call
	Error   *answer.Error   `json:"error,omitempty"`
	Result  *sandbox.Result `json:"result,omitempty"` // of exec
}
