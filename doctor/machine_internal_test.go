package doctor

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/user"
	"path/filepath"
	"strings"
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

func TestAUserWithoutASessionBusHasARemedyOfItsOwn(t *testing.T) {
	e := at(t, map[string]string{"run/systemd/system/x": ""})
	e.service = Service{Rootless: true, CgroupVersion: "v2", CgroupManager: "cgroupfs"}
	assert.Equal(t, NotEnforced, e.cgroup().Status)
	for _, fix := range []string{e.cgroup().Fix, (&trial{e: e}).fix("memory")} {
		assert.Contains(t, fix, "enable-linger")
	}
	e.service.CgroupManager = "systemd"
	assert.Equal(t, OK, e.cgroup().Status)
	e = at(t, nil)
	e.service = Service{Rootless: true, CgroupVersion: "v2", CgroupManager: "cgroupfs"}
	assert.Equal(t, OK, e.cgroup().Status, "without systemd the experiments decide")
	assert.False(t, e.withoutLogin())
	uid := patient().Uid
	assert.Equal(t, uid != "0", at(t, map[string]string{"run/systemd/system/x": ""}).withoutLogin())
	assert.False(t, at(t, map[string]string{"run/systemd/system/x": "", "run/user/" + uid + "/bus": ""}).withoutLogin())
}

func TestVersionsAreCompared(t *testing.T) {
	assert.Equal(t, version{1, 1, 5}, parseVersion("runc 1.1.5+ds1"))
	assert.Equal(t, version{6, 18, 44}, parseVersion("6.18.44-fc-v657"))
	assert.Equal(t, version{5, 4, 0}, parseVersion("crun version 5.4"))
	assert.False(t, parseVersion("unknown").known())
	for text, want := range map[string]Status{
		"runc 1.1.5": NotEnforced, "runc 1.2.8": NotEnforced, "runc 1.3.6": OK, "runc 1.4.0": NotEnforced, "runc 1.4.3": OK, "runc next": OK,
	} {
		assert.Equal(t, want, judge("runtime", text, parseVersion(text), runcHoles, nil).Status, text)
	}
	for text, want := range map[string]Status{"5.10.101": NotEnforced, "5.10.102": OK, "5.15.24": NotEnforced, "5.15.25": OK, "5.16.10": NotEnforced, "5.16.11": OK, "5.7.1": OK, "6.0.9": OK, "6.1.36": NotEnforced, "6.1.37": OK, "6.2.1": NotEnforced, "6.3.11": OK, "6.4.0": NotEnforced, "6.4.1": OK, "6.18.44": OK} {
		assert.Equal(t, want, judge("kernel", text, parseVersion(text), kernelHoles, nil).Status, text)
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

// packed writes a file of a package, as Debian installs it.
func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

func TestAKernelIsJudgedByTheVersionOfItsSource(t *testing.T) {
	for _, c := range []struct {
		name, release, version, signature string
		want                              Status
		says                              string
	}{
		{"Debian 12", "6.1.0-56-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-10-01)", "", OK, "6.1.0-56-cloud-amd64 (Debian 6.1.192-2)"},
		{"Debian 12, old", "6.1.0-9-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.27-1 (2023-05-08)", "", NotEnforced, "CVE-2023-3269 (StackRot)"},
		{"Debian 13", "6.12.118+deb13-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.118-1 (2026-10-01)", "", OK, "Debian 6.12.118-1"},
		{"Debian's backport", "6.1.0-0.deb11.13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1~bpo11+1 (2023-10-08)", "", OK, "Debian 6.1.55-1~bpo11+1"},
		{"Debian 10", "4.19.0-27-amd64", "#1 SMP Debian 4.19.316-1 (2024-06-25)", "", NotEnforced, "openat2"},
		{"Ubuntu 22.04", "5.15.0-119-generic", "#129-Ubuntu SMP Fri Aug 2 19:25:20 UTC 2024", "Ubuntu 5.15.0-119.129-generic 5.15.160\n", OK, "5.15.160"},
		{"Ubuntu 22.04, old", "5.15.0-18-generic", "#18-Ubuntu SMP", "Ubuntu 5.15.0-18.18-generic 5.15.12\n", NotEnforced, "CVE-2022-0847 (Dirty Pipe)"},
		{"Red Hat 9", "5.14.0-427.el9.x86_64", "#1 SMP PREEMPT_DYNAMIC Fri Feb 23 04:45:07 EST 2024", "", OK, "install its updates"},
		{"Fedora", "6.2.9-300.fc38.x86_64", "#1 SMP PREEMPT_DYNAMIC Thu Mar 30 22:32:58 UTC 2023", "", NotEnforced, "StackRot"},
		{"no distribution", "6.1.36", "#1 SMP", "", NotEnforced, "StackRot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := at(t, map[string]string{"proc/sys/kernel/osrelease": c.release + "\n", "proc/sys/kernel/version": c.version + "\n", "proc/version_signature": c.signature})
			e.service.Kernel = c.release
			l := e.kernel()
			assert.Equal(t, c.want, l.Status, l.Detail)
			assert.Contains(t, l.Detail, c.says)
		})
	}
	e := at(t, map[string]string{"proc/sys/kernel/osrelease": "6.12.0\n", "proc/sys/kernel/version": "#1 Debian 6.12.118-1\n"})
	e.service.Kernel = "6.1.36"
	assert.Equal(t, NotEnforced, e.kernel().Status, "Podman's machine is another one")
}

func TestAHoleInWhatABuildDoesntHaveIsNone(t *testing.T) {
	for _, c := range []struct {
		text     string
		features []string
		want     Status
	}{
		{"crun 1.8.1", []string{"+SYSTEMD", "+SELINUX", "+APPARMOR", "+CAP", "+SECCOMP", "+EBPF", "+YAJL"}, OK},
		{"crun 1.8.1", []string{"+SYSTEMD", "+LIBKRUN", "+YAJL"}, NotEnforced},
		{"crun 1.8.1", nil, NotEnforced},
		{"crun 1.4.3", []string{"+SYSTEMD"}, NotEnforced},
		{"crun 1.21", []string{"+LIBKRUN"}, OK},
	} {
		e := at(t, nil)
		e.service = Service{Runtime: c.text, RuntimeFeatures: c.features}
		l := e.runtime()
		assert.Equal(t, c.want, l.Status, "%s %s: %s", c.text, c.features, l.Detail)
	}
}

func TestTheRemedyForAPackageIsOneThatItsDistributionHas(t *testing.T) {
	e := at(t, map[string]string{"usr/share/doc/runc/changelog.Debian.gz": packed(t, "runc (1.1.5+ds1-1+deb12u1) bookworm-security; urgency=high\n\n  * CVE-2024-21626\n")})
	e.service = Service{Runtime: "runc 1.1.5+ds1", RuntimePackage: "runc_1.1.5+ds1-1+deb12u1_amd64"}
	l := e.runtime()
	assert.Equal(t, NotEnforced, l.Status)
	assert.Contains(t, l.Fix, "apt-get install --only-upgrade runc; ")
	e.service.RuntimePackage = "Unknown"
	assert.Contains(t, e.runtime().Fix, "update runc to 1.3.6")
}

func TestWhatADistributionHasRepairedIsNoHole(t *testing.T) {
	const path = "usr/share/doc/runc/changelog.Debian.gz"
	log := packed(t, "runc (1.1.5+ds1-1+deb12u1) bookworm-security; urgency=high\n\n  * CVE-2024-21626: several container breakouts\n")
	service := Service{Runtime: "runc 1.1.5+ds1", RuntimePackage: "runc_1.1.5+ds1-1+deb12u1_amd64"}
	for _, c := range []struct {
		name, pkg string
		files     map[string]string
		repaired  bool
	}{
		{"the package's changelog", service.RuntimePackage, map[string]string{path: log}, true},
		{"that of another version", "runc_1.1.5+ds1-1_amd64", map[string]string{path: log}, false},
		{"no package", "Unknown", map[string]string{path: log}, false},
		{"a package with a path", "../doc/runc_1.1.5+ds1-1+deb12u1_amd64", map[string]string{path: log}, false},
		{"no changelog", service.RuntimePackage, nil, false},
		{"what is not a changelog", service.RuntimePackage, map[string]string{path: "x"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := at(t, c.files)
			e.service = service
			e.service.RuntimePackage = c.pkg
			l := e.runtime()
			assert.Equal(t, NotEnforced, l.Status, "the others of its number stay")
			assert.Contains(t, l.Detail, "CVE-2025-31133")
			assert.Equal(t, !c.repaired, strings.Contains(l.Detail, "CVE-2024-21626"), l.Detail)
			assert.Equal(t, !c.repaired, strings.Contains(l.Detail, "may have repaired"), l.Detail)
		})
	}
	e := at(t, map[string]string{path: packed(t, "runc (1.1.5+ds1-1+deb12u9) x; urgency=high\n CVE-2024-21626 CVE-2025-31133 CVE-2025-52565 CVE-2025-52881 CVE-2026-41579\n")})
	e.service = Service{Runtime: "runc 1.1.5+ds1", RuntimePackage: "runc_1.1.5+ds1-1+deb12u9_amd64"}
	assert.Equal(t, OK, e.runtime().Status)
}
