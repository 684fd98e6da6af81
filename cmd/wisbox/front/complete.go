//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// noFiles is cobra's directive for a shell: no names of files.
const noFiles = 4

// quickComplete completes the name of a command, and that of the session behind it. It speaks as cobra does.
func quickComplete(args []string) (code int, done bool) {
	var out bytes.Buffer
	switch {
	case len(args) == 1 && !strings.HasPrefix(args[0], "-"):
		all, ok := page("complete")
		if !ok {
			return 0, false
		}
		for line := range bytes.Lines(all) {
			if bytes.HasPrefix(line, []byte(args[0])) {
				out.Write(line)
			}
		}
	case len(args) == 2 && !strings.HasPrefix(args[1], "-"):
		of, ok := page("complete sessions")
		all, listed := entries()
		if !ok || !listed || !slices.Contains(strings.Fields(string(of)), args[0]) {
			return 0, false
		}
		for _, e := range all {
			if e.State.Kept {
				fmt.Fprintln(&out, e.ID)
			}
		}
	default:
		return 0, false
	}
	fmt.Fprintf(&out, ":%d\n", noFiles)
	code, done = printed(out.Bytes())
	if done {
		fmt.Fprintln(os.Stderr, "Completion ended with directive: ShellCompDirectiveNoFileComp")
	}
	return code, done
}
