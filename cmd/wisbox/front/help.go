//go:build linux

package main

import (
	"os"
	"strings"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
)

// quickHelp is `wisbox`, `wisbox help COMMAND…` and `wisbox COMMAND… --help`, which the engine said when this was built.
func quickHelp(args []string) (code int, done bool) {
	switch {
	case len(args) == 0:
	case args[0] == "help":
		args = args[1:]
	default:
		args = args[:len(args)-1]
	}
	return shown("help " + strings.Join(args, " "))
}

// shown prints a page.
func shown(name string) (code int, done bool) {
	text, ok := page(name)
	if !ok {
		return 0, false
	}
	return printed(text)
}

func page(name string) ([]byte, bool) {
	p, err := engine.Self()
	if err != nil || strings.ContainsAny(name, "\x00\n") {
		return nil, false
	}
	return p.Page(name)
}

// printed writes to stdout. Where that fails, the engine knows what to say, if nothing was written.
func printed(text []byte) (code int, done bool) {
	n, err := os.Stdout.Write(text)
	if err != nil {
		return 1, n > 0
	}
	return 0, true
}
