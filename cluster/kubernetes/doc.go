// Package kubernetes is the [cluster.Place] of a namespace of Kubernetes. No other package of wisbox imports the
// Kubernetes client, which takes a third of a build's time; a program that imports this one, for its effect alone, has
// sessions on Kubernetes:
//
//	import _ "github.com/wisbox/wisbox/cluster/kubernetes"
//
// A Pod has two containers: "programs" runs the session's programs, and "holder" keeps its files
// and state. [Place.Create] reads the Pod back as the API server stored it, and refuses a Pod
// that an admission webhook has weakened.
package kubernetes
