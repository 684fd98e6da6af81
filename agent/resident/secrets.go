package resident

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	secretMode = 0o440 // root's, for the group of programs to read
)

var secretTimeout = patience.For(20 * time.Second)

// KeepSecrets writes files below [sandbox.SecretsDir], see [sandbox.SecretKeeper].
// The handle remembers the values, for a sandbox that is started again has none.
func (a *Agent) KeepSecrets(ctx context.Context, values map[string][]byte) error {
	a.mu.Lock()
	maps.Copy(a.secrets, values)
	a.mu.Unlock()
	names := slices.Sorted(maps.Keys(values))
	return a.With(ctx, func(conn *agent.Conn) error { return a.putSecrets(ctx, conn, names) })
}

func (a *Agent) secretNames() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.secrets))
}

// putSecrets writes the files with those names; the agent reads each back as a program
// would. Each call writes the values that are the last at that time.
func (a *Agent) putSecrets(ctx context.Context, conn *agent.Conn, names []string) error {
	if len(names) == 0 {
		return nil
	}
	a.handing.Lock()
	defer a.handing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	for _, name := range names {
		a.mu.Lock()
		value := a.secrets[name]
		a.mu.Unlock()
		if err := conn.Put(ctx, name, secretMode, value); err != nil {
			return cantKeep(ctx, err)
		}
	}
	return nil
}

func cantKeep(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, sandbox.ErrLost):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: could not hand over the secrets in time", ctx.Err())
	}
	return fmt.Errorf("%w: secrets can't be handed over; %s needs room for all of them, which are a megabyte at most: %w", sandbox.ErrUnavailable, sandbox.SecretsDir, err)
}
