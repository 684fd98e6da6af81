package lisp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// Definitions live on from one call to the next.
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
	l := lisp.New(&lisp.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	defer l.Close()
	set := tool.NewSet(l.Tools()...)
	for _, code := range []string{"(defun twice (n) (* 2 n))", "(twice 21)"} {
		args, err := json.Marshal(map[string]string{"code": code})
		if err != nil {
			log.Fatal(err)
		}
		res, err := set.Call(ctx, "evaluate-lisp", args)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Text)
	}
	// Output:
	// => TWICE
	// => 42
}
