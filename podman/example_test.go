package podman_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
)

func ExampleNew() {
	ctx := context.Background()
	backend, err := podman.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	box, err := backend.Create(ctx, sandbox.Spec{ID: "example", Image: "localhost/wisbox", Workspace: "/srv/example"})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close(ctx)
	result, err := box.Run(ctx, sandbox.Cmd{Argv: []string{"make"}, Stdout: os.Stdout})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Status, result.ExitCode)
}
