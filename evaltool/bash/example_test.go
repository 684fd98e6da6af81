package bash_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/bash"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// Variables live on between the evaluations of a shell.
func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// A product would ask package podman for the sandbox.
	box, err := sandboxtest.NewHost().Create(ctx, sandbox.Spec{ID: "example", Image: "any", Workspace: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close(ctx)
	engine := bash.New(&bash.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	defer engine.Close()
	for _, code := range []string{"x=20", "echo $((x + 22))"} {
		r, err := engine.Evaluate(ctx, evaltool.Request{Code: code, Timeout: time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %q\n", r.Status, r.Stdout)
	}
	// Output:
	// exited ""
	// exited "42\n"
}
