package main

import (
	"context"
	"os/exec"
)

var wasmTable = table{
	name: "wasm", title: "What evaluating Python in WebAssembly costs",
	about: "Medians (and p99), ours through the whole of `Session.Call`, but for the cold start, which is a process of its own. " +
		"The bases are the host's fastest interpreter itself, and `evaluate_python` in the session's container.",
	parts: []func(*bench, context.Context) error{(*bench).wasmCalls, (*bench).wasmCold},
}

// wasmCalls measures calls in a session that has evaluated before.
func (b *bench) wasmCalls(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	python, err := hostPython()
	if err != nil {
		return err
	}
	host := func() error { return exec.Command(python, "-I", "-c", "1+1").Run() }
	call := func(sandbox, state string) func() error {
		return func() error {
			return tool(ctx, s, "evaluate_python", `{"code":"1+1","sandbox":"`+sandbox+`","state":"`+state+`"}`)
		}
	}
	for _, state := range []string{"fresh", "kept"} {
		ours, base, err := alternate(b.n, call("wasm", state), host)
		if err != nil {
			return err
		}
		b.add(faster("`evaluate_python` of `1+1`, sandbox wasm, "+state, "`python3 -I -c 1+1` on the host", ours, base, 2))
		if ours, base, err = alternate(b.n, call("wasm", state), call("container", state)); err != nil {
			return err
		}
		b.add(unpromised("the same", "sandbox container, "+state, ours, base))
	}
	return nil
}

// wasmCold measures the first evaluation of a process, which maps the module that an earlier
// process compiled.
func (b *bench) wasmCold(context.Context) error {
	python, err := hostPython()
	if err != nil {
		return err
	}
	command := func(args ...string) func() error {
		return func() error {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(cmd.Environ(), "WISBOX_CACHE="+b.root+"-cold")
			return cmd.Run()
		}
	}
	cold := command(b.bin, "eval", "python", "--wasm", "1+1")
	ours, base, err := alternate(min(b.n, 20), cold, command(python, "-I", "-c", "1+1"))
	if err != nil {
		return err
	}
	b.add(unpromised("cold start: `wisbox eval python --wasm 1+1`, a process and a session of its own", "`python3 -I -c 1+1` on the host", ours, base))
	if ours, base, err = alternate(min(b.n, 10), cold, command(b.bin, "eval", "python", "1+1")); err != nil {
		return err
	}
	b.add(unpromised("the same", "`wisbox eval python 1+1`, in a container of its own", ours, base))
	return nil
}
