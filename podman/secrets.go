package podman

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

const secretTimeout = 10 * time.Second

// keepSecret writes its input as a file that its own user alone may read.
const keepSecret = `umask 377 && cat >"$0.new" && mv -f "$0.new" "$0"`

// KeepSecrets implements [sandbox.SecretKeeper]. The handle remembers the values,
// for a container that is started again has an empty tmpfs.
func (s *Sandbox) KeepSecrets(ctx context.Context, values map[string][]byte) error {
	s.mu.Lock()
	if s.secrets == nil {
		s.secrets = map[string][]byte{}
	}
	maps.Copy(s.secrets, values)
	s.mu.Unlock()
	return s.with(ctx, func(r sandbox.Runner) error { return putSecrets(ctx, r, values) })
}

func (s *Sandbox) keptSecrets() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.secrets)
}

// putSecrets writes the files as programs of the sandbox do, so that they are theirs.
func putSecrets(ctx context.Context, r sandbox.Runner, values map[string][]byte) error {
	for name, value := range values {
		res, err := r.Run(ctx, sandbox.Cmd{
			Argv: []string{"sh", "-c", keepSecret, sandbox.SecretsDir + "/" + name}, Stdin: bytes.NewReader(value), Timeout: secretTimeout,
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fail(ctx.Err(), nil, "could not hand over secret %s in time", name)
		}
		if res.Status == sandbox.StatusSandboxLost {
			return fail(sandbox.ErrLost, nil, "the sandbox was lost while secret %s was handed over", name)
		}
		if res.Status != sandbox.StatusExited || res.ExitCode != 0 {
			return fail(sandbox.ErrUnsupported, nil, "secret %s can't be handed over: the image needs sh, cat and mv, and /run/secrets room for all secrets (it ended as %s, exit code %d)",
				name, res.Status, res.ExitCode)
		}
	}
	return nil
}
