package kubernetes_test

import (
	"context"
	"fmt"
	"log"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/cluster/kubernetes"
)

func ExampleNew() {
	ctx := context.Background()
	place, err := kubernetes.New("kind-kind", "agents", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer place.Close()
	pod, err := place.Create(ctx, cluster.PodOptions{Name: "box", Image: "localhost/wisbox-pod:latest", Pull: cluster.PullNever})
	if err != nil {
		log.Fatal(err)
	}
	stream, err := place.Relay(ctx, pod)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("connected to", pod.Session)
	if err := stream.Close(); err != nil {
		log.Fatal(err)
	}
	if _, err := place.Remove(ctx, "box"); err != nil {
		log.Fatal(err)
	}
}
