package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/wisbox/wisbox/tool"
)

// verify compares the stored Pod with the Pod that was sent, because an admission webhook may
// change a Pod in between. The spec must be as generate made it, except for the fields that
// schedule, order and account for a Pod. The same holds for the metadata that programs of the
// node obey: labels select network policies, and annotations add devices and networks.
func verify(want, got *corev1.Pod) error {
	if key := foreign(want.Labels, got.Labels, statusLabels); key != "" {
		return errChanged(want, "metadata.labels["+key+"]")
	}
	if key := foreign(want.Annotations, got.Annotations, statusAnnotations); key != "" {
		return errChanged(want, "metadata.annotations["+key+"]")
	}
	if len(got.Finalizers) > 0 { // a finalizer would keep the Pod after its deletion
		return errChanged(want, "metadata.finalizers")
	}
	if len(got.Spec.EphemeralContainers) > 0 {
		return errDebugged(want)
	}
	if path := differs("spec", reflect.ValueOf(allowed(want.Spec, got.Spec)), reflect.ValueOf(got.Spec)); path != "" {
		return errChanged(want, path)
	}
	return nil
}

func errChanged(want *corev1.Pod, path string) error {
	return tool.Errorf(tool.Unavailable, "the Pod of session %s isn't as wisbox made it: the cluster changed %s; a mutating webhook or a policy does that: exempt the namespace %s from it",
		want.Labels[sessionLabel], path, want.Namespace)
}

// errDebugged returns the error for an ephemeral container. Kubernetes never removes one.
func errDebugged(want *corev1.Pod) error {
	name := want.Labels[sessionLabel]
	return tool.Errorf(tool.Unavailable, "the Pod of session %s has spec.ephemeralContainers, as of kubectl debug, whose programs can read and change the session, and which stay as long as the Pod does; remove the session, and open it again: wisbox rm %s", name, name)
}

// statusLabels are prefixes of labels that clusters set to describe a Pod's location.
var statusLabels = []string{
	"topology.kubernetes.io/",           // of the node: Kubernetes copies its zone and region
	"eks.amazonaws.com/fargate-profile", // the profile that chose the Pod: docs.aws.amazon.com/eks/latest/userguide/fargate-profile.html
}

// statusAnnotations are prefixes of annotations that clusters set to report their actions. They
// grant a Pod nothing.
var statusAnnotations = []string{
	"kubernetes.io/",   // Kubernetes: limit-ranger, psp; at most a bandwidth limit
	"openshift.io/scc", // the policy that OpenShift admitted the Pod by
	"security.openshift.io/validated-scc-subject-type", // and the subject whose rights it used
	"policies.kyverno.io/last-applied-patches",         // Kyverno: its changes, which verify compares anyway
	"cni.projectcalico.org/containerID",                // Calico: the container
	"cni.projectcalico.org/podIP",                      // and the Pod's address
	"k8s.v1.cni.cncf.io/network-status",                // Multus: likewise; k8s.v1.cni.cncf.io/networks would request more networks
	"k8s.v1.cni.cncf.io/networks-status",               // its older name
	"k8s.ovn.org/pod-networks",                         // OVN-Kubernetes: likewise
	"cloud.google.com/cluster_autoscaler_unhelpable_",  // GKE: a new node wouldn't help
	"autopilot.gke.io/resource-adjustment",             // GKE Autopilot: its changes, which verify compares anyway: cloud.google.com/kubernetes-engine/docs/concepts/autopilot-resource-requests
	"autopilot.gke.io/warden-version",                  // and its version
	"CapacityProvisioned",                              // EKS Fargate: the size of its machine: docs.aws.amazon.com/eks/latest/userguide/fargate-pod-configuration.html
	"Logging",                                          // and whether it logs: docs.aws.amazon.com/eks/latest/userguide/fargate-logging.html
}

// foreign returns the first key of a label or an annotation that differs from the one sent and
// has none of the free prefixes, or "".
func foreign(want, got map[string]string, free []string) string {
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if value, sent := want[key]; sent && value == got[key] {
			continue
		}
		if !slices.ContainsFunc(free, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			return key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, there := got[key]; !there {
			return key
		}
	}
	return ""
}

// allowed returns want with the fields of got that the cluster may set.
func allowed(want, got corev1.PodSpec) corev1.PodSpec {
	want.NodeName, want.NodeSelector, want.Affinity = got.NodeName, got.NodeSelector, got.Affinity
	want.Tolerations, want.TopologySpreadConstraints = got.Tolerations, got.TopologySpreadConstraints
	want.SchedulerName, want.SchedulingGates = got.SchedulerName, got.SchedulingGates
	want.Priority, want.PriorityClassName, want.PreemptionPolicy = got.Priority, got.PriorityClassName, got.PreemptionPolicy
	want.Overhead, want.ReadinessGates = got.Overhead, got.ReadinessGates
	want.ImagePullSecrets = got.ImagePullSecrets
	// A service account without its token grants the Pod nothing.
	want.ServiceAccountName, want.DeprecatedServiceAccount = got.ServiceAccountName, got.DeprecatedServiceAccount
	if got.HostUsers != nil && !*got.HostUsers {
		want.HostUsers = got.HostUsers // stronger
	}
	if got.OS != nil && got.OS.Name == corev1.Linux {
		want.OS = got.OS
	}
	return want
}

// differs returns the path of the first field that differs, or "".
func differs(path string, want, got reflect.Value) string {
	if equality.Semantic.DeepEqual(want.Interface(), got.Interface()) {
		return ""
	}
	switch {
	case want.Kind() == reflect.Pointer && !want.IsNil() && !got.IsNil():
		return differs(path, want.Elem(), got.Elem())
	case want.Kind() == reflect.Slice && want.Len() == got.Len():
		for i := range want.Len() {
			if found := differs(fmt.Sprintf("%s[%s]", path, nameOf(want.Index(i), i)), want.Index(i), got.Index(i)); found != "" {
				return found
			}
		}
	case want.Kind() == reflect.Struct && strings.HasPrefix(want.Type().PkgPath(), "k8s.io/api/"):
		for i := range want.NumField() {
			field := want.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := path
			if name != "" {
				at += "." + name
			}
			if found := differs(at, want.Field(i), got.Field(i)); found != "" {
				return found
			}
		}
	}
	return path
}

// nameOf returns an element's name, or its index if it has no name.
func nameOf(v reflect.Value, i int) string {
	if v.Kind() == reflect.Struct {
		if name := v.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
			return cmp.Or(name.String(), fmt.Sprint(i))
		}
	}
	return fmt.Sprint(i)
}
