package serve

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/inside/monitor"
	"github.com/wisbox/wisbox/agent/wire"
)

// call is one program: the request and its outcome.
type call struct {
	conn         *conn
	number       uint32
	head         wire.RequestHead
	key          string
	request      []byte // until a process has it
	tty, control bool
	slot         *slot
	outs         [wire.Channels]*out
	ins          [wire.Channels]*in
	totals       [wire.Channels]int64
	tails        []tail
	began        time.Time
	lasted       time.Duration
	deadline     *timer
	report       *monitor.Report
	reason       string // the status with which its end was requested
	warned       bool   // it has only got SIGTERM so far
	err          *wire.StartError
	shared       bool           // another call ran at the same time
	before       *kernel.Counts // when it began
	misses       int            // its pool's misses when it began to wait

	// If the program is detached:
	id      uint64
	pid     int
	label   string
	argv    []string
	over    *wire.Exit // its end, nil before
	told    bool       // its connection was sent the end
	waiting *timer     // ends if no host attaches in time
	lonely  bool       // no host attached
	rings   [wire.Channels]*ring
}

type tail struct {
	channel wire.Channel
	bytes   []byte
}

// verdict returns the end of the call.
func (c *call) verdict(now kernel.Counts) wire.Exit {
	var report monitor.Report
	if c.report != nil {
		report = *c.report
	}
	exit := wire.Exit{
		Status: "exited", Code: report.Status.ExitStatus(), Nanos: c.lasted.Nanoseconds(), User: report.User, System: report.System,
		Out: [2]int64{c.totals[wire.Stdout], c.totals[wire.Stderr]}, MaxRSS: report.MaxRSS << 10, Shared: c.shared, Error: c.err,
	}
	if report.Status.Signaled() {
		exit.Status, exit.Signal = "signaled", int(report.Status.Signal())
		exit.Code = 128 + exit.Signal
	}
	if c.reason != "" {
		exit.Status, exit.Signal, exit.Code = c.reason, 0, codeOf(c.reason)
	}
	if c.before != nil {
		blame(&exit, now, *c.before, report.OrphanKilled)
	}
	if c.lonely {
		exit.Notices = append(exit.Notices, fmt.Sprintf("it was ended because nobody had taken it over %v after its host was lost", unclaimed))
	}
	return exit
}

func codeOf(reason string) int {
	switch reason {
	case "timed_out":
		return 124
	case "sandbox_lost":
		return -1
	case "pids_limit":
		return 126
	}
	return 137
}

// blame finds the limit that ended a call.
func blame(exit *wire.Exit, now, then kernel.Counts, orphanKilled bool) {
	failed := exit.Code != 0
	if oom := now.OOM - then.OOM; oom != 0 {
		killed := orphanKilled || exit.Code == 137 || failed && !exit.Shared
		limitHit(exit, "oom_killed", failed && killed, fmt.Sprintf("the memory limit was reached and %d processes were killed for it", oom))
	}
	if pids := now.PIDs - then.PIDs; pids != 0 {
		limitHit(exit, "pids_limit", failed, fmt.Sprintf("the process limit was reached %d times", pids))
	}
	if xfsz := int(unix.SIGXFSZ); exit.Signal == xfsz || exit.Code == 128+xfsz {
		limitHit(exit, "disk_limit", true, "a file reached the size limit")
	}
}

func limitHit(exit *wire.Exit, status string, decides bool, evidence string) {
	exit.Notices = append(exit.Notices, evidence)
	if decides && (exit.Status == "exited" || exit.Status == "signaled") {
		exit.Status = status
	}
}
