package cluster_test

import (
	"fmt"

	"github.com/wisbox/wisbox/cluster"
)

// Without an import of cluster/kubernetes there is no place.
func ExampleNew() {
	_, err := cluster.New("kind-kind", "agents", nil)
	fmt.Println(err)
	// Output: unsupported: this program is built without Kubernetes; it must import github.com/wisbox/wisbox/cluster/kubernetes
}
