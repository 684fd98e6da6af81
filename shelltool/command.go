package shelltool

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Limits of the public contract on a command.
const (
	maxArgvChars   = 4096
	maxArgs        = 4096
	maxScriptBytes = 32 << 10
	maxEnv         = 64
	maxEnvKey      = 80  // characters
	maxEnvValue    = 512 // characters
)

// Command is the program or script to run. Exactly one of Commands and Script is required.
type Command struct {
	Commands []string          `json:"commands,omitempty" hint:"one program and its arguments, an item each, as [\"ls\", \"-l\"]; a command line with blanks, pipes or redirections goes into script" jsonschema:"one program and its arguments, run without a shell; at most 4096 characters together, in ASCII unless the session has the option paths=any"`
	Script   string            `json:"script,omitempty" alias:"command" jsonschema:"a script for bash -c (sh -c where the image has no bash), at most 32 KiB; use it instead of commands where a shell is wanted"`
	Cwd      string            `json:"cwd,omitempty" jsonschema:"directory of the workspace to run in; the workspace itself when left out"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"variables for the program; at most 64 with names of 80 and values of 512 characters"`
	Stdin    string            `json:"stdin,omitempty" jsonschema:"text for the program's standard input, at most 48000 characters"`
}

// command checks c and returns the sandbox's command for it, and the argv to show, which doesn't
// repeat a script.
func (s *Shell) command(ctx context.Context, c Command) (cmd sandbox.Cmd, shown []string, err error) {
	if err := c.check(s.opts.Paths == vfs.Any, s.opts.MaxText); err != nil {
		return cmd, nil, err
	}
	if cmd.Dir, err = s.dir(ctx, c.Cwd); err != nil {
		return cmd, nil, err
	}
	cmd.Argv, shown = c.Commands, brief(c.Commands)
	if c.Script != "" {
		cmd.Argv, shown = []string{"bash", "-c", c.Script}, []string{"bash", "-c"}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		cmd.Env = append(cmd.Env, key+"="+c.Env[key])
	}
	return cmd, shown, nil
}

func (c Command) check(unicode bool, maxText int) error {
	switch {
	case len(c.Commands) > 0 && c.Script != "":
		return invalid("script", "commands and script are both given; give only one")
	case c.Script != "":
		if err := checkScript(c.Script); err != nil {
			return err
		}
	default:
		if err := checkArgv(c.Commands, unicode); err != nil {
			return err
		}
	}
	if err := checkEnv(c.Env); err != nil {
		return err
	}
	return checkText("stdin", c.Stdin, maxText)
}

func checkArgv(argv []string, unicode bool) error {
	if len(argv) == 0 {
		return invalid("commands", "commands is empty; give a program and its arguments, or a script")
	}
	if argv[0] == "" {
		return invalid("commands", "the first of commands is empty; it names the program")
	}
	if len(argv) > maxArgs {
		return invalid("commands", "commands has %d entries; the maximum is %d", len(argv), maxArgs)
	}
	total := 0
	for _, arg := range argv {
		if total += utf8.RuneCountInString(arg); total > maxArgvChars {
			return invalid("commands", "commands has more than %d characters together; put long input into a file, stdin or script", maxArgvChars)
		}
		if !unicode && strings.ContainsFunc(arg, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return invalid("commands", "commands takes ASCII only; use script, stdin or a file for other text")
		}
		if !utf8.ValidString(arg) {
			return invalid("commands", "an entry of commands is not UTF-8; use script, stdin or a file for other bytes")
		}
		if strings.ContainsRune(arg, 0) {
			return invalid("commands", "an entry of commands has a NUL character; remove it")
		}
	}
	return nil
}

func checkScript(script string) error {
	switch {
	case len(script) > maxScriptBytes:
		return invalid("script", "script has %d bytes; the maximum is %d: write it to a file and run that", len(script), maxScriptBytes)
	case strings.ContainsRune(script, 0):
		return invalid("script", "script has a NUL character; remove it")
	case !utf8.ValidString(script):
		return invalid("script", "script is not UTF-8; write it to a file with encoding base64, and run that")
	}
	return nil
}

func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return invalid("env", "env has %d entries; the maximum is %d", len(env), maxEnv)
	}
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if err := checkVariable(key, env[key]); err != nil {
			return err
		}
	}
	return nil
}

func checkVariable(key, value string) error {
	switch {
	case key == "":
		return invalid("env", "env has an empty name; give it a name, or remove it")
	case utf8.RuneCountInString(key) > maxEnvKey:
		return invalid("env", "env has a name that is too long; the maximum is %d characters", maxEnvKey)
	case !utf8.ValidString(key), strings.ContainsFunc(key, func(r rune) bool { return r == '=' || r < ' ' || r == 0x7f }):
		return invalid("env", "the name %q in env has '=' or a control character; use another name", key)
	case utf8.RuneCountInString(value) > maxEnvValue:
		return invalid("env", "the value of %q in env is too long; the maximum is %d characters", key, maxEnvValue)
	case !utf8.ValidString(value), strings.ContainsRune(value, 0):
		return invalid("env", "the value of %q in env has a NUL character or is not UTF-8; use a file for it", key)
	}
	return nil
}

func checkText(field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return tool.Errorf(tool.TooLarge, "%s has %d characters; the maximum is %d: write a file instead", field, n, most).In(field)
	}
	if !utf8.ValidString(text) {
		return invalid(field, "%s is not UTF-8; use a file for other bytes", field)
	}
	return nil
}

func invalid(field, format string, args ...any) error {
	return tool.Errorf(tool.Invalid, format, args...).In(field)
}

// Bounds of the command in a result, since its caller knows the whole.
const (
	maxShownArgs = 16
	maxShownArg  = 64 // bytes
)

// brief returns argv with long arguments cut.
func brief(argv []string) []string {
	shown := make([]string, 0, maxShownArgs)
	for i, arg := range argv {
		if i == maxShownArgs-1 && len(argv) > maxShownArgs {
			return append(shown, "…")
		}
		if len(arg) > maxShownArg {
			arg = strings.ToValidUTF8(arg[:maxShownArg-1], "") + "…"
		}
		shown = append(shown, arg)
	}
	return shown
}
