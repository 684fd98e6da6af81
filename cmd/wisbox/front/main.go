//go:build linux

// Command front is what people start as wisbox. It links little, so it starts in a fraction of the engine's time. It
// does the plain forms of the commonest commands on a session whose holder runs; everything else, and whatever doesn't
// go as expected before the holder has taken the call, is left to the engine with the same arguments and streams.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/stateroot"
)

func main() {
	if code, done := quickly(os.Args[1:]); done {
		os.Exit(code)
	}
	cont(nil)
}

// cont continues as the engine, with the arguments of this process or with others.
func cont(args []string) {
	if args != nil {
		os.Args = append(os.Args[:1:1], args...)
	}
	fmt.Fprintln(os.Stderr, "wisbox: unavailable:", engine.Continue())
	os.Exit(1)
}

// quickly does a command if it can.
func quickly(args []string) (code int, done bool) {
	switch {
	case len(args) == 0 || args[0] == "help" || args[len(args)-1] == "--help" || args[len(args)-1] == "-h":
		return quickHelp(args)
	case len(args) == 1 && args[0] == "ls":
		return quickList()
	case args[0] == "__complete":
		return quickComplete(args[1:])
	case len(args) > 2 && args[0] == "exec":
		return quickExec(args[1], args[2:])
	case len(args) > 2 && args[0] == "call":
		return quickCall(args[1], args[2:])
	}
	return 0, false
}

// onThisMachine reports whether commands are about this machine's sessions.
func onThisMachine() bool {
	if patience.Check() != nil { // the engine says what is wrong
		return false
	}
	for _, name := range []string{"WISBOX_REMOTE", "WISBOX_POD"} {
		if os.Getenv(name) != "" {
			return false
		}
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(config, "wisbox", "remotes.json")) // one may be the default
	return os.IsNotExist(err)
}

// holderOf returns a client of the holder of a session on this machine.
func holderOf(session string) (*hold.Client, bool) {
	dir, err := stateroot.Default()
	if err != nil || !onThisMachine() {
		return nil, false
	}
	return hold.Root{CacheDir: dir}.Looker(session), stateroot.Usable(dir)
}

// reported continues as the engine to say how a call ended.
func reported(v any) int {
	raw, err := json.Marshal(v)
	if err == nil {
		cont([]string{"__report", string(raw)})
	}
	return 1
}
