package podmantest

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Image is an image for tests, made of nothing but a Debian package's static programs: it lacks Python and may lack a
// shell and the usual directories.
type Image struct {
	// Shell is the command that runs scripts in it, nil without one.
	Shell []string

	lines string // of the Containerfile, after those that copy the files
	files []file
}

type file struct {
	name, link string // link is a symbolic link's target
	mode       int64
	data       []byte
}

// Busybox returns a static busybox with links for its programs, and no further directories.
func Busybox(t testing.TB) Image {
	t.Helper()
	return Image{Shell: []string{"sh", "-c"}, files: applets(t, "bin/")}
}

// AlpineLike has what a small distribution adds: users, the usual directories, a PATH with a directory and program of
// its own, and a link to a directory for mounts.
func AlpineLike(t testing.TB) Image {
	t.Helper()
	i := Image{Shell: []string{"/bin/ash", "-c"}, files: applets(t, "usr/bin/"), lines: "ENV PATH=/opt/tool/bin:/usr/bin TOOL_HOME=/opt/tool HOME=/root\nUSER 405\nENTRYPOINT [\"/usr/bin/false\"]\n"}
	i.files = append(i.files,
		file{name: "bin", link: "usr/bin", mode: 0o777}, file{name: "var/run", link: "/run", mode: 0o777},
		file{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/ash\nguest:x:405:100:guest:/dev/null:/sbin/nologin\n")},
		file{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nusers:x:100:\n")},
		// runc gives a tmpfs the mode of the directory that it covers: the first would keep programs out, the second
		// would let them in.
		file{name: "tmp/", mode: 0o755}, file{name: "run/secrets/", mode: 0o1777}, file{name: "run/", mode: 0o1777},
		file{name: "root/", mode: 0o700},
		file{name: "opt/tool/bin/tool", mode: 0o755, data: []byte("#!/bin/sh\necho \"$TOOL_HOME\"\n")},
		file{name: "opt/tool/bin/sbcl", link: "tool", mode: 0o777},
	)
	return i
}

// Distroless has three programs and no shell.
func Distroless(t testing.TB) Image {
	t.Helper()
	busybox := program(t)
	i := Image{lines: "ENV APP=1\nCMD [\"/app/cat\"]\n"}
	for _, name := range []string{"cat", "env", "sleep"} {
		i.files = append(i.files, file{name: "app/" + name, mode: 0o755, data: busybox})
	}
	i.lines = "ENV PATH=/app\n" + i.lines
	return i
}

// Context returns a build context with a Containerfile.
func (i Image) Context(t testing.TB) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	write := func(h *tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	write(&tar.Header{Name: "Containerfile", Mode: 0o644}, []byte("FROM scratch\nCOPY root/ /\n"+i.lines))
	for _, f := range i.files {
		h := &tar.Header{Name: "root/" + f.name, Mode: f.mode, Linkname: f.link}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.link != "" {
			h.Typeflag = tar.TypeSymlink
		}
		write(h, f.data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// program returns the static busybox that `make setup` installs.
func program(t testing.TB) []byte {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("busybox is not installed; run `make setup`")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// applets returns busybox and a link for each of its programs.
func applets(t testing.TB, dir string) []file {
	t.Helper()
	files := []file{{name: dir + "busybox", mode: 0o755, data: program(t)}}
	names, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if name != "busybox" {
			files = append(files, file{name: dir + name, link: "busybox", mode: 0o777})
		}
	}
	return files
}
