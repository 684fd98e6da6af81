package settings_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/settings"
)

type limits struct {
	Memory int64   `json:"memory_bytes" setting:"memory" unit:"bytes"`
	CPUs   float64 `json:"cpus"`
}

type options struct {
	Name   string        `json:"-" guest:"own"`
	Image  string        `json:"image"`
	Limits limits        `json:"limits" guest:"most"`
	Idle   time.Duration `json:"idle,omitempty" guest:"own"`
	Proxy  string        `json:"proxy" guest:"-"`
}

type wire struct {
	options
	Pull string `json:"pull" guest:"own"`
}

// TestWhatAStructDeclares: a setting without an audience's tag isn't the audience's.
func TestWhatAStructDeclares(t *testing.T) {
	o := &options{Name: "a", Image: "i", Limits: limits{Memory: 1 << 30, CPUs: 1.5}, Idle: time.Minute, Proxy: "p"}
	var seen []string
	for _, f := range settings.Of[options]("guest") {
		seen = append(seen, f.Path+" "+f.Rule+" "+f.Text(f.In(o)))
	}
	assert.Equal(t, []string{"- own a", "limits.memory most 1GiB", "limits.cpus most 1.5", "idle own 1m0s"}, seen)
	assert.Equal(t, []string{"limits", "idle", "pull"}, settings.Keys[wire]("guest"))
	assert.Equal(t, options{Limits: o.Limits, Idle: time.Minute}, settings.Keep(*o, "guest"))

	memory := settings.Of[options]("guest")[1]
	less := &options{Limits: limits{Memory: 1<<30 - 1}}
	assert.True(t, settings.Less(memory.In(less), memory.In(o)))
	assert.False(t, settings.Less(memory.In(o), memory.In(less)))
	assert.Equal(t, "1073741823 bytes", memory.Text(memory.In(less)))
	memory.In(less).SetInt(5)
	assert.Equal(t, int64(5), less.Limits.Memory)
}
