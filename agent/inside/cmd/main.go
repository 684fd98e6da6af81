// Command wisbox-agent is the agent of a sandbox: the first process of its container,
// and the only thing that wisbox brings into it. It comes with the library (package
// agent/native). Its modes:
//
//	init [WORKSPACE [SECRETS]]    execute this program again as serve, with the timer slack that spares the processors
//	serve [WORKSPACE [SECRETS]]   serve; as pid 1 make the control socket, else take it from descriptor 3
//	monitor WORKSPACE             run programs for the agent at descriptor 3
//	relay                         join stdin and stdout to the agent's socket
//	files                         work on files, as a program that the agent starts
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"

	"github.com/wisbox/wisbox/agent/inside"
)

func main() {
	if err := inside.Main(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wisbox-agent:", err)
		os.Exit(1)
	}
}
