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

const (
	aboutWorkspace = `The tools work on one workspace: a directory that programs see as /workspace. Paths are relative to it.`
	aboutPrograms  = `Programs have no network, run as an ordinary user, and have limits on memory, processes and time`
)

// Guidance tells a model how the tools of a profile go together. Of those that it
// knows from its training it says only where they work.
func Guidance(profile string) string {
	switch profile {
	case "", "wisbox", "vfs":
		return aboutWorkspace + aboutTools
	}
	return aboutWorkspace + "\n" + aboutPrograms + "."
}

const aboutTools = `
File tools (ls, read_file, write_file, edit_file, glob, grep, rm) need no program and are the fastest way to read and change files.
shell_execute runs one command (commands, an argv) or a script (bash) to its end; nothing that it starts outlives the call.
process_start begins what has to run on: read it with process_read, end it with process_signal.
` + aboutPrograms + `: a status other than "exited" says which one was hit.
evaluate_python evaluates a snippet and gives the value of its last expression; state "kept" keeps names between calls.
evaluate-lisp does the same for Common Lisp; its definitions stay for the session.
snapshot_create keeps the workspace as it is, snapshot_restore brings it back; take one before you try something.
context_load and context_op work on texts that are too large to read.`
