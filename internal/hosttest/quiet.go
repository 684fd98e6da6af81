package hosttest

import "regexp"

var waiting = regexp.MustCompile(`(?m)^wisbox: waiting for .*\n`)

// Quiet is the command quiet of scripts of package testscript: the last command has written nothing to stderr, but for what
// it may have waited.
func Quiet[T interface {
	ReadFile(name string) string
	Fatalf(format string, args ...any)
}](script T, neg bool, args []string) {
	if said := waiting.ReplaceAllString(script.ReadFile("stderr"), ""); neg || len(args) > 0 || said != "" {
		script.Fatalf("stderr has more than what it waited for: %q", said)
	}
}
