// Command hyper is every program of a small Kubernetes in one binary. The name that it is started
// by chooses the program, or else its first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	cm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	sched "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"context"
)

func main() {
	name := filepath.Base(os.Args[0])
	args := os.Args[1:]
	if name == "hyper" && len(args) > 0 {
		name, args = args[0], args[1:]
		os.Args = append([]string{name}, args...)
	}
	var cmd *cobra.Command
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		cmd = cm.NewControllerManagerCommand()
	case "kube-scheduler":
		cmd = sched.NewSchedulerCommand()
	case "kubelet":
		cmd = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		cmd = kubectl.NewDefaultKubectlCommand()
	default:
		fmt.Fprintln(os.Stderr, "hyper: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl")
		os.Exit(2)
	}
	os.Exit(cli.Run(cmd))
}
