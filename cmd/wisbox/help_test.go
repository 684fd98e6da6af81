package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyCommand calls do with every visible command.
func everyCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, below := range cmd.Commands() {
		if !below.Hidden {
			everyCommand(below, do)
		}
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	var out strings.Builder
	a := &app{in: strings.NewReader(""), out: &out, err: io.Discard}
	everyCommand(a.newRootCmd(), func(cmd *cobra.Command) {
		out.Reset()
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		require.NoError(t, cmd.Help())
		for line := range strings.Lines(out.String()) {
			assert.Less(t, len([]rune(strings.TrimRight(line, "\n"))), 100, "%s: %s", cmd.CommandPath(), line)
		}
		if cmd.Name() != "session-flags" { // the one list of all
			assert.LessOrEqual(t, strings.Count(out.String(), "\n"), 50, "%s: its help doesn't fit a screen; shorten it, or mark flags rare", cmd.CommandPath())
		}
		first, _, _ := strings.Cut(cmd.Short, " ")
		assert.NotContains(t, []string{"A", "An", "The", "What", "How", "Have"}, first, "%s: begin with a verb", cmd.CommandPath())
	})
}

// TestTheFirstHelpIsShort, and has every command.
func TestTheFirstHelpIsShort(t *testing.T) {
	var out strings.Builder
	root := (&app{in: strings.NewReader(""), out: &out, err: io.Discard}).newRootCmd()
	require.NoError(t, root.Help())
	assert.LessOrEqual(t, strings.Count(out.String(), "\n"), 30, out.String())
	listed := map[string]int{}
	for _, s := range sections {
		for _, name := range s.commands {
			listed[name]++
		}
	}
	for _, cmd := range root.Commands() {
		switch {
		case cmd.IsAdditionalHelpTopicCommand() && !cmd.Hidden:
			assert.Contains(t, out.String(), cmd.Name())
		case cmd.IsAvailableCommand() && cmd.Name() != "help":
			assert.Equal(t, 1, listed[cmd.Name()], cmd.Name())
			delete(listed, cmd.Name())
		}
	}
	assert.Empty(t, listed, "they don't exist")
}

// TestTheFormerNamesStillWork, without being shown.
func TestTheFormerNamesStillWork(t *testing.T) {
	root := (&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).newRootCmd()
	for former, now := range map[string]string{
		"session create": "create", "session list": "ls", "session ls": "ls", "session inspect": "inspect", "session pause": "pause", "session resume": "resume",
		"session clone": "clone", "session save": "save", "session load": "load", "session reset": "reset", "session allow": "allow", "session deny": "deny",
		"session rm": "rm", "session start": "start", "session stop": "stop", "session rename": "rename", "session secret": "secret", "session egress": "egress",
		"log": "history", "log verify": "history verify", "rlm run": "lab rlm run", "digest show": "lab digest show", "wasm install": "lab wasm install",
		"context ls": "lab context ls", "bench": "lab bench", "metrics": "lab metrics", "eval lisp": "lab eval-lisp", "list": "ls",
	} {
		of := func(line string) *cobra.Command {
			cmd, rest, err := root.Find(strings.Fields(line))
			require.NoError(t, err, line)
			require.Empty(t, rest, line)
			return cmd
		}
		was, is := of(former), of(now)
		assert.Equal(t, is.Short, was.Short, former)
		assert.Equal(t, is.Flags().FlagUsages(), was.Flags().FlagUsages(), former)
		assert.True(t, is.IsAvailableCommand(), now)
	}
}

func TestEveryFlagSaysWhatItTakes(t *testing.T) {
	everyCommand((&app{}).newRootCmd(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			assert.NotEmpty(t, usage, "%s --%s", cmd.CommandPath(), f.Name)
			assert.NotContains(t, []string{"string", "stringArray", "float", "int", "duration"}, name,
				"%s --%s: name its value in backquotes", cmd.CommandPath(), f.Name)
		})
	})
}

var word = regexp.MustCompile(`'[^']*'|[^ ']+`)

// TestExamplesAreGoodCommandLines parses the examples in help.
func TestExamplesAreGoodCommandLines(t *testing.T) {
	everyCommand((&app{}).newRootCmd(), func(described *cobra.Command) {
		for line := range strings.Lines(described.Example + "\n" + rootHelp) {
			line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "  wisbox ")
			if !ok {
				continue
			}
			line, _, _ = strings.Cut(line, "  ") // without its explanation
			line, _, _ = strings.Cut(line, " | ")
			var args []string
			for _, w := range word.FindAllString(line, -1) {
				args = append(args, strings.Trim(w, "'"))
			}
			cmd, rest, err := (&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).newRootCmd().Find(args)
			require.NoError(t, err, line)
			require.NoError(t, cmd.ParseFlags(rest), line)
			assert.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
		}
	})
}

// TestTheVariablesAreDocumentedTwice: in the help and in the table of docs/configuration.md.
func TestTheVariablesAreDocumentedTwice(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for _, name := range []string{"PODMAN_BASE_URL", "PODMAN_IDENTITY", "PODMAN_CONNECTION", "WISBOX_CACHE", "WEAKINCENTIVES_CACHE"} {
		assert.Contains(t, environmentHelp, name)
		assert.Contains(t, string(page), "`"+name+"`")
	}
	for _, name := range regexp.MustCompile(`(WISBOX|XDG|PODMAN|CONTAINER)_[A-Z_]+`).FindAllString(environmentHelp, -1) {
		assert.Contains(t, string(page), "`"+name+"`", name)
	}
}

// TestUndoIsTheDefaultWhereSomebodyWorks: a person or an agent will take a call back; programs of run and eval are over at once.
func TestUndoIsTheDefaultWhereSomebodyWorks(t *testing.T) {
	root := (&app{}).newRootCmd()
	for name, want := range map[string]string{"create": "true", "agent": "true", "mcp": "true", "run": "false", "eval python": "false"} {
		cmd, _, err := root.Find(strings.Fields(name))
		require.NoError(t, err)
		steps := cmd.Flags().Lookup("auto-snapshot")
		require.NotNil(t, steps, name)
		assert.Equal(t, want, steps.Value.String(), name)
	}
}
