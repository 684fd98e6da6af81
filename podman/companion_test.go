package podman

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
)

func aCompanion() companion {
	return companion{
		container: container{
			name: "wisbox-r-box.db", image: "localhost/db", files: hostFiles{seccomp: "/run/w/seccomp.json", empty: "/run/w/empty", hosts: "/run/w/hosts", agent: "/agent"},
			limits: companionLimits(sandbox.Companion{}), labels: map[string]string{labelCompanion: "db"},
		},
		main: "0123abc", dirs: []string{"/var/lib/db", "/var/run/db", "/run", "/dev/x", "/proc", "/"}, owner: ",uid=70,gid=70",
	}
}

// TestACompanionIsAsClosedAsItsSandbox: it joins two namespaces of it, and has nothing of
// the host's but two files that say nothing.
func TestACompanionIsAsClosedAsItsSandbox(t *testing.T) {
	g := aCompanion().generate()
	assert.Equal(t, "container:0123abc", string(g.NetNS.NSMode)+":"+g.NetNS.Value)
	assert.Equal(t, "container:0123abc", string(g.UserNS.NSMode)+":"+g.UserNS.Value)
	assert.Equal(t, []string{"all"}, g.CapDrop)
	assert.Equal(t, []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID"}, g.CapAdd)
	assert.True(t, *g.NoNewPrivileges)
	assert.True(t, *g.ReadOnlyFilesystem)
	assert.Equal(t, "/run/w/seccomp.json", g.SeccompProfilePath)
	assert.Equal(t, masked, g.Mask)
	assert.Equal(t, int64(sandbox.CompanionMemory), *g.ResourceLimits.Memory.Limit)
	assert.Equal(t, int64(sandbox.CompanionPIDs), g.ResourceLimits.Pids.Limit)
	assert.Equal(t, int64(logFileSize), g.LogConfiguration.Size)
	assert.Empty(t, g.Entrypoint, "the image's")
	assert.Empty(t, g.User, "the image's")
	var places, binds []string
	for _, m := range g.Mounts {
		if m.Type == "bind" {
			assert.Contains(t, m.Options, "ro")
			binds = append(binds, m.Source)
			continue
		}
		assert.Contains(t, m.Options, "nosuid")
		places = append(places, m.Destination)
		options := strings.Join(m.Options, " ")
		assert.Equal(t, slices.Contains([]string{"/run", "/var/lib/db"}, m.Destination), strings.Contains(options, "uid=70,gid=70"), m.Destination)
		assert.True(t, m.Type == "devpts" || strings.Contains(options, "size="), "%s is bounded", m.Destination)
	}
	assert.Equal(t, []string{"/run/w/empty", "/run/w/hosts"}, binds)
	assert.Equal(t, []string{"/dev/pts", "/dev/shm", "/run", "/tmp", "/var/lib/db", "/var/tmp"}, places)
}

func TestAnImageSaysWhereItListensAndWrites(t *testing.T) {
	var i image
	assert.Zero(t, i.port())
	require.NoError(t, json.Unmarshal([]byte(`{"Config":{"ExposedPorts":{"53/udp":{},"8080/tcp":{},"443":{},"99999/tcp":{},"x/tcp":{}},"Volumes":{"/b":{},"/a":{}}}}`), &i))
	assert.Equal(t, uint16(443), i.port())
	assert.Equal(t, []string{"/a", "/b"}, i.volumes())
}

func TestAUserIsLookedUpInTheImagesList(t *testing.T) {
	const list = "root:x:0:0::/:/bin/sh\nbad\npostgres:x:70:71:PostgreSQL:/var/lib:/bin/sh\nodd:x:-1:0::/:/\n\nlast:x:5:6:"
	for name, want := range map[string][2]string{"postgres": {"70", "71"}, "last": {"5", "6"}, "odd": {}, "bad": {}, "nobody": {}} {
		user, group := lookUp(list, name)
		assert.Equal(t, want, [2]string{user, group}, name)
	}
}

// TestOutputIsUnframedHoweverItComes, one byte after the other too.
func TestOutputIsUnframedHoweverItComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw, out, errs, wantOut, wantErrs bytes.Buffer
		for _, text := range rapid.SliceOf(rapid.StringN(0, 20, 40)).Draw(t, "frames") {
			stream := rapid.SampledFrom([]byte{1, 2}).Draw(t, "stream")
			raw.Write(podmantest.Frame(stream, text))
			if stream == 1 {
				wantOut.WriteString(text)
			} else {
				wantErrs.WriteString(text)
			}
		}
		u := &unframed{stdout: &out, stderr: &errs}
		for raw.Len() > 0 {
			part := raw.Next(rapid.IntRange(1, 30).Draw(t, "size"))
			n, err := u.Write(part)
			require.NoError(t, err)
			require.Equal(t, len(part), n)
		}
		require.Equal(t, wantOut.String(), out.String())
		require.Equal(t, wantErrs.String(), errs.String())
	})
}
