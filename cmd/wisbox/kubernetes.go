//go:build kubernetes

package main

import _ "github.com/wisbox/wisbox/cluster/kubernetes" // for addresses that begin with kube:
