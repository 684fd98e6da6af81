// Package cluster creates, finds and removes the Pods of sessions on Kubernetes, one Pod per
// session, and opens a stream to the wisbox in each. No other package of wisbox imports the
// Kubernetes client. The content of the stream isn't this package's concern.
//
// A Pod has two containers: "programs" runs the session's programs, and "holder" keeps its files
// and state. [Place.Create] reads the Pod back as the API server stored it, and refuses a Pod
// that an admission webhook has weakened.
package cluster
