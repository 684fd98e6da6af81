package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// envFlags are the flags for variables of programs.
type envFlags struct{ vars, files []string }

func (f *envFlags) register(flags *pflag.FlagSet, of string) {
	flags.StringArrayVarP(&f.vars, "env", "e", nil, "set a variable for "+of+": `NAME=VALUE`, or NAME for its value here; repeatable")
	flags.StringArrayVar(&f.files, "env-file", nil, "`FILE` of such variables, one per line; # begins a comment; --env wins; repeatable")
}

// list returns the variables as NAME=VALUE. If a name occurs twice, the last value wins.
func (f *envFlags) list() ([]string, error) {
	var all []string
	for _, path := range f.files {
		file, err := os.Open(path)
		if err != nil {
			return nil, hostError(err)
		}
		some, err := readEnv(path, file)
		_ = file.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	for _, text := range f.vars {
		pair, err := variable(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--env: %w", err)}
		}
		all = append(all, pair)
	}
	return all, nil
}

// Bounds of a file of variables: the kernel accepts no longer variable, and no more of them for a
// program.
const (
	maxEnvLine = 128 << 10
	maxEnvFile = 1 << 20
)

func readEnv(path string, r io.Reader) (all []string, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEnvLine)
	n, total := 1, 0
	for ; lines.Scan(); n++ {
		if total += len(lines.Bytes()) + 1; total > maxEnvFile {
			return nil, usageError{fmt.Errorf("--env-file %s, line %d: the file has more than %d bytes; give fewer variables", path, n, maxEnvFile)}
		}
		line := strings.TrimLeft(strings.TrimPrefix(lines.Text(), "\ufeff"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		pair, err := variable(line)
		if err != nil {
			return nil, usageError{fmt.Errorf("--env-file %s, line %d: %w", path, n, err)}
		}
		all = append(all, pair)
	}
	if err := lines.Err(); err != nil {
		return nil, usageError{fmt.Errorf("--env-file %s, line %d: it can't be read, or is longer than %d bytes", path, n, maxEnvLine)}
	}
	return all, nil
}

// variable returns a variable as NAME=VALUE; for a NAME alone it takes this process's value. Errors
// don't repeat values, which may be secret.
func variable(text string) (string, error) {
	name, value, given := strings.Cut(text, "=")
	switch {
	case name == "":
		return "", errors.New("the name is missing; write it as NAME=VALUE")
	case strings.ContainsAny(name, " \t"):
		return "", fmt.Errorf("the name %q has a blank; write it as NAME=VALUE", name)
	case !given:
		var set bool
		if value, set = os.LookupEnv(name); !set {
			return "", fmt.Errorf("the variable %s is not set here; write it as NAME=VALUE", name)
		}
	}
	if !utf8.ValidString(name+value) || strings.Contains(name+value, "\x00") {
		return "", fmt.Errorf("the variable %q has a NUL character or is not UTF-8; use a file for it", name)
	}
	return name + "=" + value, nil
}
