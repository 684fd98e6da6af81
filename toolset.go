package wisbox

import (
	"slices"

	"github.com/wisbox/wisbox/evaltool"
	profiles "github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// ToolSet describes the tools without a session: names, texts and schemas, for
// listing. Its tools must not be called.
func ToolSet() *tool.Set {
	set, _ := ToolProfile("")
	return set
}

// ToolProfile is ToolSet under the names and in the shapes that some models were
// trained on, see [profiles.Names]. An unknown profile is invalid.
func ToolProfile(name string) (*tool.Set, error) {
	var files *vfs.FS
	eval, err := evaltool.New(&evaltool.Options{Files: files})
	if err != nil {
		return nil, err
	}
	return profile(name, files, nil, eval)
}

// profile is the order in which the tools are listed.
func profile(name string, files *vfs.FS, shell *shelltool.Shell, eval *evaltool.Evaluator) (*tool.Set, error) {
	own := tool.NewSet(slices.Concat(files.Tools(), shell.Tools(), eval.Tools())...)
	return profiles.New(name, own, own)
}

// Guidance tells a model how the tools go together.
func Guidance() string {
	return `The tools work on one workspace: a directory that programs see as /workspace. Paths are relative to it.
File tools (ls, read_file, write_file, edit_file, glob, grep, rm) need no program and are the fastest way to read and change files.
shell_execute runs one command (commands, an argv) or a script (bash) to its end; nothing that it starts outlives the call.
process_start begins what has to run on: read it with process_read, end it with process_signal.
Programs have no network, run as an ordinary user, and have limits on memory, processes and time: a status other than "exited" says which one was hit.
evaluate_python evaluates a snippet and gives the value of its last expression; state "kept" keeps names between calls.`
}
