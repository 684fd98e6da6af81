package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	commandInText  = regexp.MustCompile("`(?:bin/)?wisbox ([a-z_][^`]*)`")
	commandInBlock = regexp.MustCompile(`(?m)^(?:[^#\n]*(?:\||\$\(|&&|;) *)?(?:bin/)?wisbox ([a-z][^\n]*)`)
	block          = regexp.MustCompile("(?ms)^```.*?^```")
	optional       = regexp.MustCompile(`\[[^]]*\]`)
	endOfCommand   = regexp.MustCompile(`  +| [|<>&#]|\)$`)
)

// TestTheDocsCommandsAndFlagsExist parses every command line of wisbox that the README and the
// pages name, in their text too. Package integration runs those of their blocks.
func TestTheDocsCommandsAndFlagsExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	found := 0
	for _, path := range append(pages, "../../README.md", "../../SECURITY.md", "../../ARCHITECTURE.md", "../../CHANGELOG.md") {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(raw), "\\|", "|")
		lines := commandInText.FindAllStringSubmatch(text, -1)
		for _, b := range block.FindAllString(text, -1) {
			lines = append(lines, commandInBlock.FindAllStringSubmatch(b, -1)...)
		}
		for _, m := range lines {
			found++
			line := optional.ReplaceAllString(strings.Join(strings.Fields(endOfCommand.Split(m[1]+"\n", 2)[0]), " "), "")
			assert.NoError(t, exists(line), "%s: wisbox %s", path, line)
		}
	}
	assert.Greater(t, found, 200)
}

// exists returns an error if a command line names a command or a flag that wisbox doesn't have. It
// ignores the flags' values: a page may say FILE or N.
func exists(line string) error {
	var args []string
	for _, w := range word.FindAllString(line, -1) {
		w = strings.Trim(w, "'")
		if first, _, alternatives := strings.Cut(w, "|"); alternatives && !strings.HasPrefix(w, "-") {
			w = first
		}
		args = append(args, w)
	}
	cmd, rest, err := (&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).newRootCmd().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil && strings.Contains(err.Error(), "unknown") {
		return err
	}
	if cmd.HasSubCommands() && !cmd.Runnable() && len(cmd.Flags().Args()) > 0 {
		return cmd.ValidateArgs(cmd.Flags().Args())
	}
	return nil
}
