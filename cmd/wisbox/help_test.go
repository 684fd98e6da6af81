package main

import (
	"io"
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
