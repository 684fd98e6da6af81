package resident_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// An agent as a plain process; a container's is reached by resident.Taken.
func ExampleNew() {
	dir, err := os.MkdirTemp("/tmp", "example-")
	check(err)
	defer os.RemoveAll(dir)
	check(os.Chmod(dir, 0o755))
	program, err := native.Install(dir)
	check(err)
	link, err := resident.Spawn(exec.Command(program, "init", dir, dir))
	check(err)
	defer link.Close()

	a := resident.New(&resident.Options{Link: link})
	defer a.Close()
	check(a.With(context.Background(), func(conn *agent.Conn) error {
		_, err := conn.Run(context.Background(), sandbox.Cmd{Argv: []string{"echo", "hello"}, Stdout: os.Stdout})
		return err
	}))
	fmt.Println("and nothing of it runs any more")
	// Output:
	// hello
	// and nothing of it runs any more
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
