package far

import (
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Kube is the address of a namespace of a Kubernetes cluster, in which each session has its own
// Pod.
type Kube struct {
	Context   string // in the kubeconfig, or [InCluster]
	Namespace string // "" only with InCluster: that of the Pod
}

// InCluster is the context that a process in a Pod names the Pod's own cluster by, unless a kubeconfig has a
// context of that name.
const InCluster = "in-cluster"

const (
	kubePrefix = "kube:"
	kubeForm   = "kube:CONTEXT/NAMESPACE"
	maxContext = 253 // bytes
)

// Names of contexts, such as those of EKS, may have slashes and colons. They are shown in commands
// for a shell.
var (
	kubeContext   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/@+-]*$`) })
	kubeNamespace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })
)

// IsKube reports whether an address is that of a Kubernetes cluster.
func IsKube(address string) bool { return strings.HasPrefix(address, kubePrefix) }

// ParseKube parses an address: kube:CONTEXT/NAMESPACE, or kube:in-cluster for the namespace of the
// Pod that this process runs in. The last slash separates the namespace.
func ParseKube(address string) (*Kube, error) {
	rest, ok := strings.CutPrefix(address, kubePrefix)
	if rest == InCluster {
		return &Kube{Context: InCluster}, nil
	}
	slash := strings.LastIndexByte(rest, '/')
	if !ok || slash < 0 {
		return nil, tool.Errorf(tool.Invalid, "the address %q has no namespace; write %s, as in kube:kind-kind/agents; the contexts are in: kubectl config get-contexts", address, kubeForm).In("address")
	}
	k := &Kube{Context: rest[:slash], Namespace: rest[slash+1:]}
	switch {
	case strings.HasPrefix(rest, "//"):
		return nil, tool.Errorf(tool.Invalid, "the address %q must have no // behind kube:; write %s", address, kubeForm).In("address")
	case !kubeContext().MatchString(k.Context) || len(k.Context) > maxContext:
		return nil, tool.Errorf(tool.Invalid, "the context of the address must be one of the kubeconfig, of 1 to %d letters, digits and _ . : / @ + -; write %s", maxContext, kubeForm).In("address")
	case !kubeNamespace().MatchString(k.Namespace):
		return nil, tool.Errorf(tool.Invalid, "the namespace of the address must be 1 to 63 lower-case letters, digits and hyphens, and neither begin nor end with a hyphen; write %s", kubeForm).In("address")
	}
	return k, nil
}

// Check checks an address.
func Check(address string) error {
	if IsKube(address) {
		_, err := ParseKube(address)
		return err
	}
	_, err := Parse(address)
	return err
}
