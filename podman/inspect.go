package podman

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/sandbox"
)

// listed is one container of a list, in the form that all versions of Podman share.
type listed struct {
	ID      string            `json:"Id"`
	Image   string            `json:"Image"`
	State   string            `json:"State"`
	Labels  map[string]string `json:"Labels"`
	Created time.Time         `json:"Created"`

	ExitCode int `json:"ExitCode"`
}

func (c listed) info() sandbox.Info {
	return sandbox.Info{
		ID: c.Labels[labelSandbox], Object: c.ID, State: c.State, Image: c.Image,
		Labels: c.Labels, Created: c.Created,
	}
}

func (b *Backend) inspect(ctx context.Context, name string) (*define.InspectContainerData, error) {
	var data define.InspectContainerData
	err := b.do(ctx, request{method: http.MethodGet, path: containerPath(name, "/json"), out: &data})
	if err != nil {
		return nil, err
	}
	if data.State == nil || data.Config == nil || data.HostConfig == nil {
		return nil, fail(sandbox.ErrUnavailable, nil, "podman's description of the container is incomplete")
	}
	return &data, nil
}

// healthy reports whether a program can start in the container now: it has been running (or paused, which can be
// undone) since this boot, and its monitor is alive.
func healthy(data *define.InspectContainerData) bool {
	s := data.State
	if !s.Running && !s.Paused || data.Config.Labels[labelBoot] != bootID() {
		return false
	}
	return conmonLives(s.ConmonPid)
}

// beingMade reports whether the container hasn't started yet and the process that created it is still alive.
func beingMade(data *define.InspectContainerData) bool {
	labels := data.Config.Labels
	pid, _, _ := strings.Cut(labels[labelMaker], " ")
	n, err := strconv.Atoi(pid)
	return err == nil && slices.Contains([]string{"created", "configured", "initialized"}, data.State.Status) &&
		labels[labelBoot] == bootID() && labels[labelMaker] == maker(n) && time.Since(data.Created) < createTimeout
}

// maker identifies a process by its ID and start time, which no later process shares.
func maker(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	after := strings.LastIndexByte(string(stat), ')') // the name before it may contain anything
	if err != nil || after < 0 {
		return ""
	}
	fields := strings.Fields(string(stat[after+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fmt.Sprintf("%d %s", pid, fields[19])
}

// conmonLives also returns true if the state is unknown, as for the conmon of another host or user.
func conmonLives(pid int) bool {
	if pid <= 0 {
		return true
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if os.IsNotExist(err) {
		return false
	}
	return err != nil || string(comm) == "conmon\n"
}
