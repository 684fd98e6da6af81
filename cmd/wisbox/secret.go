package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// fromEnv in the place of a file stands for the value of a variable.
const fromEnv = "env"

// parseSecrets reads NAME=FILE and NAME=env.
func parseSecrets(specs []string) (map[string]wisbox.Secret, error) {
	out := make(map[string]wisbox.Secret, len(specs))
	for _, spec := range specs {
		name, source, ok := strings.Cut(spec, "=")
		if !ok || name == "" || source == "" {
			return nil, usageError{fmt.Errorf("the secret %q has no value; write it as NAME=FILE, or NAME=env for the value of the variable NAME", name)}
		}
		secret, err := secretFrom(name, source)
		if err != nil {
			return nil, err
		}
		out[name] = secret
	}
	return out, nil
}

func secretFrom(name, source string) (wisbox.Secret, error) {
	if source == fromEnv {
		value, set := os.LookupEnv(name)
		if !set {
			return wisbox.Secret{}, tool.Errorf(tool.NotFound, "--secret %s=env: the variable %s is not set; set it, or name a file", name, name).In("secrets")
		}
		_ = os.Unsetenv(name) // so that no child of this process gets it
		return wisbox.Secret{Value: []byte(value)}, nil
	}
	path, err := filepath.Abs(source)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return wisbox.Secret{}, tool.Errorf(tool.NotFound, "--secret %s: the file can't be read; write NAME=FILE, or NAME=env for the value of the variable", name).In("secrets").Because(err)
	}
	return wisbox.Secret{File: path}, nil
}

func (a *app) newSessionSecretCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "secret SESSION NAME=FILE|env…",
		Short: "Set secrets of a kept session",
		Long: `Sets secrets: programs that start later find each value in /run/secrets/NAME. wisbox
reads a secret's file again whenever it makes the session's container. A value of the
environment is in the memory of the process that holds the session, which then stays
until the session ends. If that process is killed, the session's programs are
unavailable until you set the secret again.`,
		Example: `  wisbox secret box TOKEN=./token
  GH_TOKEN=… wisbox secret box GH_TOKEN=env`,
		Args: atLeast("SESSION", "NAME=FILE|env"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSessionSecret(cmd.Context(), args[0], args[1:])
		},
	}
}

func (a *app) runSessionSecret(ctx context.Context, name string, specs []string) error {
	secrets, err := parseSecrets(specs)
	if err != nil {
		return err
	}
	return a.withSession(ctx, name, func(s *wisbox.Session) error { return s.SetSecrets(ctx, secrets) })
}
