package podman

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// descendants are the known descendants of a process. A pidfd holds each, so kill never ends another
// process that has its number now.
type descendants map[int]*os.Process

// look adds the current descendants of pid and of the known descendants: when a process ends, its
// children get another parent.
func (d descendants) look(pid int) {
	d.below(pid)
	for known := range d {
		d.below(known)
	}
}

func (d descendants) below(pid int) {
	for _, child := range children(pid) {
		if d[child] != nil {
			continue
		}
		held, err := os.FindProcess(child)
		if err != nil || !slices.Contains(children(pid), child) { // it ended meanwhile
			continue
		}
		d[child] = held
		d.below(child)
	}
}

// kill kills all known descendants and releases them.
func (d descendants) kill() {
	for pid, held := range d {
		_ = held.Kill()
		_ = held.Release()
		delete(d, pid)
	}
}

// children returns the processes whose parent is pid.
func children(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		text, _ := os.ReadFile(path) // "": the thread has ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}
