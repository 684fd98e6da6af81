package devcontainer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/devcontainer"
	"github.com/wisbox/wisbox/tool"
)

func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func TestAFileIsReadWithItsCommentsAndVariables(t *testing.T) {
	t.Setenv("TOKEN", "of this machine")
	got, err := devcontainer.Read(project(t, map[string]string{".devcontainer/devcontainer.json": `{
		// a comment, and commas at ends
		"name": "shop",
		"image": "localhost/wisbox",
		"containerEnv": {"A": "${localWorkspaceFolderBasename}", "T": "${localEnv:TOKEN}", "D": "${localEnv:NONE:default}", "GONE": "x"},
		"remoteEnv": {"GONE": null, "W": "${containerWorkspaceFolder}/bin", "L": "${localWorkspaceFolder}", "PATH": "${containerEnv:PATH}:/x", "OWN": "${containerEnv:A}/${containerEnv:B:b}"},
		"mounts": [
			"source=${localWorkspaceFolder}/data,target=/workspace/in,type=bind",
			{"source": "/etc", "target": "/workspace/etc", "type": "bind"},
			"source=${localWorkspaceFolder}/../other,target=/workspace/other,type=bind",
			"source=cache,target=/root/.cache,type=volume",
			"source=${localWorkspaceFolder}2,target=/workspace/in,type=bind",
			"source=${localWorkspaceFolder},target=/workspace2,type=bind",
		],
		"onCreateCommand": ["make", "${containerWorkspaceFolder}", "${containerEnv:A}", "${containerEnv:X}"],
		"postCreateCommand": {"two": "echo two $HOME ${containerEnv:A} ${containerEnv:X}", "one": ["echo", "one"]},
		"IMAGE": "another", "postcreatecommand": "evil", // another case is another name
		"forwardPorts": [3000], "features": {},
	}`, "data/x": ""}))
	require.NoError(t, err)
	require.Equal(t, &devcontainer.File{
		Path: ".devcontainer/devcontainer.json", Image: "localhost/wisbox",
		Env:    map[string]string{"A": "shop", "T": "", "D": "default", "W": "/workspace/bin", "L": "/workspace", "PATH": "${containerEnv:PATH}:/x", "OWN": "shop/${containerEnv:B:b}"},
		Mounts: []devcontainer.Mount{{Source: "data", Dest: "in"}},
		Commands: []devcontainer.Command{
			{Name: "onCreateCommand", Argv: []string{"make", "/workspace", "shop", "${containerEnv:X}"}},
			{Name: "postCreateCommand one", Argv: []string{"echo", "one"}},
			{Name: "postCreateCommand two", Argv: []string{"/bin/sh", "-c", "echo two $HOME shop ${containerEnv:X}"}},
		},
		Unused: []string{"${localEnv:NONE}", "${localEnv:TOKEN}", "IMAGE", "features", "forwardPorts", "mounts", "postcreatecommand"},
	}, got)
}

func TestAByteOrderMarkIsNoPartOfTheFile(t *testing.T) {
	got, err := devcontainer.Read(project(t, map[string]string{".devcontainer.json": "\ufeff// c\n{\"image\": \"a\"}"}))
	require.NoError(t, err)
	require.Equal(t, "a", got.Image)
}

func TestAnImageMayBeBuilt(t *testing.T) {
	for file, text := range map[string]string{
		".devcontainer/devcontainer.json": `{"build": {"dockerfile": "../Dockerfile", "context": "..", "args": {"V": "1"}, "target": "dev"}}`,
		".devcontainer.json":              `{"dockerFile": "Dockerfile", "build": {"args": {"V": "1"}, "target": "dev"}}`,
	} {
		got, err := devcontainer.Read(project(t, map[string]string{file: text, "Dockerfile": "FROM x"}))
		require.NoError(t, err)
		require.Equal(t, &devcontainer.Build{File: "Dockerfile", Context: ".", Args: map[string]string{"V": "1"}}, got.Build)
		require.Equal(t, []string{"build.target"}, got.Unused)
	}
}

func TestAFileThatCanNotBeUsedSaysWhy(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:           "is not an object of JSON with comments",
		`{"image": 1}`: "image has a value of the wrong type",
		`{"image": "a", "build": {"dockerfile": "b"}}`:                                                    "it has both image and a Dockerfile",
		`{"build": {"dockerfile": "../../x"}}`:                                                            "build leads out of the project's folder",
		`{"build": {"dockerfile": "/etc/passwd"}}`:                                                        "which is not in the project's folder",
		`{"build": {"dockerfile": "link"}}`:                                                               "which is not in the project's folder",
		`{"mounts": ["type=bind,source=${localWorkspaceFolder}/.devcontainer/link,target=/workspace/x"]}`: "which is not in the project's folder",
		`{"build": 7}`:                                "build is not an object of JSON with comments",
		`{"containerEnv": {"A=B": "x"}}`:              `has the invalid variable "A=B"`,
		`{"image": "a", "image": "b"}`:                "it has image twice",
		`{"build": {"args": {}, "args": {}}}`:         "it has build.args twice",
		`{} {}`:                                       "it is not one object",
		`{"build": {"dockerfile": "fifo"}}`:           "or is of the wrong kind",
		`{"postCreateCommand": 7}`:                    "postCreateCommand must be a command line",
		`{"mounts": [7]}`:                             "an entry of mounts is neither text nor an object",
		`{"x": "` + strings.Repeat("x", 1<<20) + `"}`: "can't be read as a file of at most 1048576 bytes",
	} {
		dir := project(t, map[string]string{".devcontainer/devcontainer.json": text})
		require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, ".devcontainer", "link")))
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, ".devcontainer", "fifo"), 0o644))
		_, err := devcontainer.Read(dir)
		require.ErrorContains(t, err, want)
		require.Equal(t, tool.Invalid, tool.KindOf(err))
	}
	_, err := devcontainer.Read(t.TempDir())
	require.Equal(t, tool.NotFound, tool.KindOf(err))
	dir := project(t, nil)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, ".devcontainer.json")))
	_, err = devcontainer.Read(dir)
	require.Equal(t, tool.Invalid, tool.KindOf(err), "a link that leads out")
	dir = project(t, nil)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, ".devcontainer.json"), 0o644))
	_, err = devcontainer.Read(dir)
	require.Equal(t, tool.Invalid, tool.KindOf(err), "a FIFO, which nobody writes to")
}

func FuzzRead(f *testing.F) {
	f.Add(`{"image": "a", "mounts": ["source=${localWorkspaceFolder}/x,target=/workspace/y,type=bind"]}`)
	f.Add(`{"build": {"dockerfile": "../Dockerfile"}, "remoteEnv": {"A": null}} // c`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := devcontainer.Read(project(t, map[string]string{".devcontainer.json": text, "Dockerfile": ""}))
		if err != nil {
			require.NotEqual(t, tool.Internal, tool.KindOf(err))
			return
		}
		for _, m := range got.Mounts {
			require.True(t, filepath.IsLocal(m.Source) && filepath.IsLocal(m.Dest), m)
		}
	})
}
