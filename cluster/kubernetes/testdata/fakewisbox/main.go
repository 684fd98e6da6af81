// Command fakewisbox stands for wisbox in a Pod, for the tests of package cluster.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch command := os.Args[1]; command {
	case "__init":
		for {
			time.Sleep(50 * time.Millisecond)
			if _, err := os.Stat("/ctl/eat"); err == nil {
				_ = os.Remove("/ctl/eat")
				eat()
			}
		}
	case "__pod":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		<-ended
	case "__relay":
		relay()
	}
}

// eat takes all of the memory.
func eat() {
	var all [][]byte
	for {
		part := make([]byte, 1<<20)
		for i := range part {
			part[i] = 1
		}
		all = append(all, part)
	}
}

// relay answers each line.
func relay() {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("hello of " + os.Getenv("WISBOX_POD") + " " + strings.Join(os.Args[2:], " "))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch line {
		case "eat\n":
			_ = os.WriteFile("/ctl/eat", nil, 0o600)
		case "end\n":
			syscall.Kill(1, syscall.SIGTERM)
		case "fail\n":
			fmt.Fprint(os.Stderr, "a first line\nthe reason\n")
			os.Exit(3)
		}
		fmt.Print(line)
	}
}
