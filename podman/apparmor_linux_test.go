package podman

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standInAppArmor makes the kernel's files say what the test wants.
func standInAppArmor(t *testing.T, on, profiles string) {
	t.Helper()
	was := [2]string{appArmorOn, appArmorProfiles}
	t.Cleanup(func() { appArmorOn, appArmorProfiles = was[0], was[1] })
	dir := t.TempDir()
	appArmorOn, appArmorProfiles = filepath.Join(dir, "enabled"), filepath.Join(dir, "profiles")
	for path, text := range map[string]string{appArmorOn: on, appArmorProfiles: profiles} {
		if text != "" {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
	}
}

func TestARuntimesOwnProfileIsFound(t *testing.T) {
	const debian13 = "containers-default-0.62.2 (enforce)\ncrun (unconfined)\nrunc (unconfined)\nman_groff (enforce)\n"
	for name, c := range map[string]struct {
		on, profiles string
		rootless     bool
		runtime      string
		want         bool
	}{
		"Debian 13":        {"Y\n", debian13, false, "crun", true},
		"its runc":         {"Y\n", debian13, false, "runc", true},
		"rootless":         {"Y\n", debian13, true, "crun", false},
		"another runtime":  {"Y\n", debian13, false, "kata", false},
		"a name within":    {"Y\n", "mycrun (enforce)\ncrun-x (enforce)\n", false, "crun", false},
		"no profile":       {"Y\n", "containers-default-0.50.1 (enforce)\n", false, "crun", false},
		"off":              {"N\n", debian13, false, "crun", false},
		"no AppArmor":      {"", "", false, "crun", false},
		"profiles unknown": {"Y\n", "", false, "crun", false},
	} {
		t.Run(name, func(t *testing.T) {
			standInAppArmor(t, c.on, c.profiles)
			info := &hostInfo{}
			info.Host.Security.Rootless, info.Host.OCIRuntime.Name = c.rootless, c.runtime
			assert.Equal(t, c.want, info.stacksProfiles())
		})
	}
}

func TestWhereProfilesWouldBeStacked(t *testing.T) {
	for _, stacked := range []bool{false, true} {
		g := container{stacked: stacked, userns: usernsMode{}}.generate()
		assert.Equal(t, !stacked, *g.NoNewPrivileges)
		assert.Empty(t, g.ApparmorProfile, "the container's own profile stays")
		service := companion{container: container{stacked: stacked}}.generate()
		assert.True(t, *service.NoNewPrivileges)
		assert.Equal(t, map[bool]string{true: "unconfined"}[stacked], service.ApparmorProfile)
	}
}
