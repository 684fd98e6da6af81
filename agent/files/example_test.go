package files_test

import (
	"context"
	"fmt"

	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/sandbox"
)

func ExampleNew() {
	// In place of what agent.Dial returns: an agent whose sandbox has one file.
	agent := impostor{said: frames(filewire.IsItem, filewire.Item{Mode: 0o100644, Size: 5}, filewire.IsEnded, filewire.Ended{})}

	f := files.New(agent)
	defer f.Close()
	info, err := f.Stat(context.Background(), "/tmp/notes", sandbox.StatOptions{})
	fmt.Println(info.Path, info.Mode, info.Size, err)
	// Output: /tmp/notes -rw-r--r-- 5 <nil>
}
