package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/serve"
)

func (a *app) newServeKeyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create, list and revoke API keys of wisbox serve",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newServeKeyCreateCmd(), a.newServeKeyListCmd(), a.newServeKeyRevokeCmd())
	return cmd
}

func (a *app) newServeKeyCreateCmd() *cobra.Command {
	var opts serve.KeyOptions
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Create an API key and print it, once",
		Long: `Makes an API key and prints it. The server keeps only its hash. A
key sees its own sandboxes, and with --replace those of another key, which stays valid
until you revoke it. A running server accepts the new key at once.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Sandboxes < 0 || opts.Creations < 0 || opts.Expires < 0 || opts.CPUs < 0 {
				return usageError{fmt.Errorf("--sandboxes, --per-minute, --cpus and --expires can't be negative")}
			}
			return a.runServeKeyCreate(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Name, "name", "", "`NAME` of the key")
	flags.DurationVar(&opts.Expires, "expires", 0, "make the key invalid after this `TIME`, e.g. 720h (default never)")
	flags.IntVar(&opts.Sandboxes, "sandboxes", 0, "`N` sandboxes at once (default the server's --sandboxes)")
	flags.IntVar(&opts.Creations, "per-minute", 0, "create at most `N` sandboxes a minute (default 60)")
	flags.Float64Var(&opts.CPUs, "cpus", 0, "`N` processors for all of its sandboxes (default no limit)")
	flags.Var(sizeFlag{&opts.Memory}, "memory", "`SIZE` of memory for all of its sandboxes, e.g. 8g (default no limit)")
	flags.Var(sizeFlag{&opts.Disk}, "disk", "`SIZE` of all of its sandboxes, their logs and snapshots, e.g. 40g (default no limit)")
	flags.BoolVar(&opts.Metrics, "metrics", false, "allow reading the server's metrics at /metrics")
	flags.StringVar(&opts.Replaces, "replace", "", "`ID` of a key whose sandboxes the new one sees")
	return cmd
}

func (a *app) serveKeys() (*serve.Keys, error) {
	dir, err := a.serveDir()
	if err != nil {
		return nil, err
	}
	return serve.KeysOf(dir)
}

func (a *app) runServeKeyCreate(ctx context.Context, opts serve.KeyOptions) error {
	keys, err := a.serveKeys()
	if err != nil {
		return err
	}
	text, key, err := keys.Create(ctx, opts)
	if err != nil {
		return asUsage(err)
	}
	return a.print(struct {
		serve.Key
		Text string `json:"key"`
	}{key, text}, func(w io.Writer) { fmt.Fprintln(w, text) })
}

func (a *app) newServeKeyListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the API keys",
		Long: `Lists the API keys with the resources that their sandboxes have. Disk is the limit of
workspaces, logs and snapshots together, from the start. Keys with the same SANDBOXES OF
share sandboxes.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runServeKeyList(cmd.Context()) },
	}
}

// listedKey is a key with the resources that its owner has taken.
type listedKey struct {
	serve.Key
	Taken serve.Taken `json:"taken"`
}

func (a *app) runServeKeyList(ctx context.Context) error {
	keys, err := a.serveKeys()
	if err != nil {
		return err
	}
	all, err := keys.List()
	if err != nil {
		return err
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	taken, err := keys.Taken(m)
	listed := make([]listedKey, len(all))
	for i, k := range all {
		listed[i] = listedKey{k, taken[k.Owner]}
	}
	return errors.Join(err, a.print(listed, func(w io.Writer) { writeKeys(w, listed) }))
}

func writeKeys(w io.Writer, all []listedKey) {
	table := newTable(w, "ID", "NAME", "SANDBOXES OF", "SANDBOXES", "SNAPSHOTS", "DISK", "CREATED", "EXPIRES")
	defer table.Flush()
	for _, k := range all {
		expires := "never"
		if !k.Expires.IsZero() {
			expires = k.Expires.Format(time.RFC3339)
		}
		table.row(k.ID, streams.Printable(k.Name), k.Owner, share(fmt.Sprint(k.Taken.Sandboxes), k.Sandboxes > 0, fmt.Sprint(k.Sandboxes)),
			k.Taken.Snapshots, share(units.BytesSize(float64(k.Taken.Disk)), k.Disk > 0, units.BytesSize(float64(k.Disk))), k.Created.Format(time.RFC3339), expires)
	}
}

// share returns the taken part, followed by the bound if there is one.
func share(taken string, bounded bool, of string) string {
	if !bounded {
		return taken
	}
	return taken + " of " + of
}

func (a *app) newServeKeyRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API key; its sandboxes run until their time is over",
		Args:  exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := a.serveKeys()
			if err != nil {
				return err
			}
			return asUsage(keys.Revoke(cmd.Context(), args[0]))
		},
	}
}
