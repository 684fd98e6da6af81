package sandbox

import (
	"strconv"

	"github.com/docker/go-units"
)

// Asked returns every limit as requested, as not enforced, with the reason.
func (l Limits) Asked(why string) []LimitState {
	size := func(n int64) string { return units.BytesSize(float64(n)) }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []LimitState{
		{Name: "cpus", Asked: strconv.FormatFloat(l.CPUs, 'f', -1, 64), By: why},
		{Name: "memory", Asked: size(l.Memory), By: why},
		{Name: "pids", Asked: number(l.PIDs), By: why},
		{Name: "tmp", Asked: size(l.Tmp), By: why},
		{Name: "nofile", Asked: number(l.NoFile), By: why},
		{Name: "fsize", Asked: size(l.FileSize), By: why},
		{Name: "disk", Asked: size(l.Disk), By: why},
		{Name: "inodes", Asked: number(l.Inodes), By: why},
	}
}
