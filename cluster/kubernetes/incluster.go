package kubernetes

import (
	"errors"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/tool"
)

// podNamespace is the file with the namespace of a Pod that has a service account token.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// inCluster returns the access of the Pod's service account. The token is read again when it
// changes.
func (p *Place) inCluster() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, errInCluster(err)
	}
	if p.namespace != "" {
		return config, nil
	}
	name, err := os.ReadFile(podNamespace)
	if p.namespace = strings.TrimSpace(string(name)); p.namespace == "" {
		return nil, errInCluster(errors.Join(errors.New("the account has no namespace"), err))
	}
	return config, nil
}

func errInCluster(err error) error {
	return tool.Errorf(tool.Unavailable, "kube:%s is for a process in a Pod whose service account has its token mounted, and this one has none; name a context of a kubeconfig instead, as kube:CONTEXT/NAMESPACE", cluster.InCluster).Because(err).In("address")
}
