package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/tool"
)

// kubeProgram is this program with the build tag kubernetes, which links Kubernetes' client. That is a third of the
// whole, and most people start wisbox a thousand times without it.
const kubeProgram = "wisbox-kube"

// withKubernetes continues as wisbox-kube, with the same arguments and streams, if this program lacks Kubernetes'
// client. It must be called before a command has read or changed anything.
func withKubernetes() error {
	if cluster.Linked() {
		return nil
	}
	path, err := findKube()
	if err == nil {
		err = syscall.Exec(path, os.Args, os.Environ()) //nolint:gosec // a program of ours
	}
	return tool.Errorf(tool.Unavailable, "sessions on Kubernetes need the program %s beside wisbox, or on the PATH; `make kube` builds it", kubeProgram).Because(err)
}

// findKube returns the path of wisbox-kube, which make install and packages put beside wisbox.
func findKube() (string, error) {
	self, err := engine.Program()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), kubeProgram)
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	return exec.LookPath(kubeProgram)
}
