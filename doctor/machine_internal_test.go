package doctor

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(t *testing.T, files map[string]string) *examination {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	}
	return &examination{opts: Options{Root: root}}
}

func TestARangeOfIdsIsFoundByNameAndNumber(t *testing.T) {
	who := &user.User{Uid: "1001", Username: "ann"}
	for file, want := range map[string]int64{
		"":                                   0,
		"bob:100000:65536\n":                 0,
		"ann:100000:65536\n":                 65536,
		"bob:1:5\n1001:100000:65536\n":       65536,
		"ann:100000:1000\nann:200000:2000\n": 3000,
		"ann:x:y\nann\nann:1:-5\n":           0,
	} {
		assert.Equal(t, want, rangeOf(file, who), "%q", file)
	}
}

func TestEachMissingPrerequisiteOfAUserIsBroken(t *testing.T) {
	who := patient().Username
	e := at(t, nil)
	assert.Equal(t, Broken, e.helpers().Status)
	assert.Equal(t, Broken, e.subordinate("/etc/subuid").Status)
	assert.Equal(t, OK, e.namespaces().Status, "a kernel without the switch")

	e = at(t, map[string]string{
		"usr/bin/newuidmap": "", "usr/bin/newgidmap": "", "etc/subuid": who + ":100000:65536\n", "etc/subgid": who + ":100000:10\n",
		"proc/sys/user/max_user_namespaces": "0\n",
	})
	assert.Equal(t, OK, e.helpers().Status)
	assert.Equal(t, OK, e.subordinate("/etc/subuid").Status)
	assert.Equal(t, Broken, e.subordinate("/etc/subgid").Status)
	assert.Equal(t, Broken, e.namespaces().Status)
	assert.NotEmpty(t, e.namespaces().Fix)
}

func TestVersionsAreCompared(t *testing.T) {
	assert.Equal(t, version{1, 1, 5}, parseVersion("runc 1.1.5+ds1"))
	assert.Equal(t, version{6, 18, 44}, parseVersion("6.18.44-fc-v657"))
	assert.Equal(t, version{5, 4, 0}, parseVersion("crun version 5.4"))
	assert.False(t, parseVersion("unknown").known())
	for text, want := range map[string]Status{
		"runc 1.1.5": NotEnforced, "runc 1.2.8": NotEnforced, "runc 1.3.6": OK, "runc 1.4.0": NotEnforced, "runc 1.4.3": OK, "runc next": OK,
	} {
		assert.Equal(t, want, judge("runtime", text, runcHoles).Status, text)
	}
	for text, want := range map[string]Status{"5.10.101": NotEnforced, "5.10.102": OK, "5.15.24": NotEnforced, "5.15.25": OK, "5.16.10": NotEnforced, "5.16.11": OK, "5.7.1": OK, "6.0.9": OK, "6.1.36": NotEnforced, "6.1.37": OK, "6.2.1": NotEnforced, "6.3.11": OK, "6.4.0": NotEnforced, "6.4.1": OK, "6.18.44": OK} {
		assert.Equal(t, want, judge("kernel", text, kernelHoles).Status, text)
	}
}

func TestWhatAUserLacksIsRepaired(t *testing.T) {
	who := patient().Username
	e := at(t, map[string]string{
		"etc/subuid": "bob:100000:65536\nann:300000:65536", "proc/sys/user/max_user_namespaces": "0\n", "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
	})
	look := map[string]func() Line{
		"subuid": func() Line { return e.subordinate("/etc/subuid") }, "subgid": func() Line { return e.subordinate("/etc/subgid") }, "user namespaces": e.namespaces,
	}
	for name, l := range look {
		assert.Equal(t, Broken, e.check(t.Context(), l).Status, "%s: nobody asked for a repair", name)
	}
	e.opts.Fix = true
	for name, l := range look {
		fixed := e.check(t.Context(), l)
		assert.Equal(t, OK, fixed.Status, "%+v", fixed)
		assert.Contains(t, fixed.Detail, "repaired")
		assert.NotContains(t, e.check(t.Context(), l).Detail, "repaired", "%s: it is well, and stays as it is", name)
	}
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(e.opts.Root, name))
		require.NoError(t, err)
		return string(raw)
	}
	assert.Equal(t, "bob:100000:65536\nann:300000:65536\n"+who+":365536:65536\n", read("etc/subuid"), "a range of nobody else's")
	assert.Equal(t, who+":100000:65536\n", read("etc/subgid"))
	assert.Equal(t, "user.max_user_namespaces = 15000\n", read("etc/sysctl.d/60-wisbox-max_user_namespaces.conf"))
	assert.Equal(t, "0\n", read("proc/sys/kernel/apparmor_restrict_unprivileged_userns"))
}
