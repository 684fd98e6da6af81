// Command wisbox-agent is the agent of a sandbox: the first process of its container,
// and the only thing that wisbox brings into it. Package agent/native embeds it. Its modes:
//
//	init [ARG...]       execute this program again as serve, with a timer slack that saves processor time
//	serve [ARG...]      serve; pid 1 makes the control socket, others get it at descriptor 3
//	monitor WORKSPACE   run programs for the agent at descriptor 3
//	relay               connect stdin and stdout to the agent's socket
//	files               work on files, started by the agent as a program
//
// The arguments of init and serve are WORKSPACE, SECRETS, the PATH of programs, the maximum number of programs at once,
// and the path of a SOCKET on which it listens for uid 0. All are optional; "" is the default.
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
