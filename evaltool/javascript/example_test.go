package javascript_test

import (
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/javascript"
	"github.com/wisbox/wisbox/sandbox"

	"context"
	"fmt"
	"time"
)

// Names live on between the evaluations of a context.
func ExampleNew() {
	ctx := context.Background()
	var box sandbox.Runner // a product would ask package podman for the sandbox
	engine := javascript.New(&javascript.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	defer engine.Close()
	for _, code := range []string{"const x = 20", "await Promise.resolve(x + 22)"} {
		r, err := engine.Evaluate(ctx, evaltool.Request{Code: code, Timeout: time.Minute})
		if err != nil {
			fmt.Println(err)
			return
		}
		if r.Value != nil {
			fmt.Println(*r.Value)
		}
	}
}
