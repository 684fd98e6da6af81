package kubernetes

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

var update = flag.Bool("update", false, "write the golden files")

var samples = map[string]PodOptions{
	"least": {Name: "box", Image: "registry.example.com/wisbox-pod@sha256:0000"},
	"most": {
		Name: "a", Image: "localhost/wisbox-pod:latest", Pull: cluster.PullNever, UserHome: true, TTL: 90 * time.Second, RuntimeClass: "gvisor", Snapshots: 1 << 30,
		Limits: sandbox.Limits{CPUs: 0.29, Memory: 64 << 20, Tmp: 8 << 20, Disk: 1 << 30, NoFile: 300, FileSize: 1 << 20},
	},
}

// TestThePodOfASession compares generated Pods with golden files, which make changes reviewable.
func TestThePodOfASession(t *testing.T) {
	for name, s := range samples {
		raw, err := yaml.Marshal(shapeFor(s).generate("agents"))
		require.NoError(t, err)
		path := filepath.Join("testdata", name+".yaml")
		if *update {
			require.NoError(t, os.WriteFile(path, raw, 0o644)) //nolint:gosec // a golden file
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(raw), "%s; if it is meant so: go test ./cluster -update", name)
	}
}

func TestWhatAPodWasMadeOfIsReadBack(t *testing.T) {
	for _, s := range samples {
		want := shapeFor(s)
		pod := want.generate("agents")
		assert.Equal(t, want, shapeOf(pod))
		require.NoError(t, verify(shapeOf(pod).generate("agents"), pod))
	}
}

// free lists the fields that the cluster may set.
var free = []string{
	"nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "schedulingGates",
	"priority", "priorityClassName", "preemptionPolicy", "overhead", "readinessGates", "imagePullSecrets", "serviceAccountName", "serviceAccount",
}

// TestAWeakenedPodIsRefused changes each field of the API, one at a time: in the Pod's spec, its
// containers, their security contexts and its volumes.
func TestAWeakenedPodIsRefused(t *testing.T) {
	shape := shapeFor(samples["least"])
	want := shape.generate("agents")
	changes := map[string]func(*corev1.Pod){}
	eachField(want, func(p *corev1.Pod) reflect.Value { return reflect.ValueOf(&p.Spec).Elem() }, "spec", changes)
	for i, c := range want.Spec.Containers {
		at := "spec.containers[" + c.Name + "]"
		eachField(want, func(p *corev1.Pod) reflect.Value { return reflect.ValueOf(&p.Spec.Containers[i]).Elem() }, at, changes)
		eachField(want, func(p *corev1.Pod) reflect.Value {
			return reflect.ValueOf(p.Spec.Containers[i].SecurityContext).Elem()
		}, at+".securityContext", changes)
	}
	eachField(want, func(p *corev1.Pod) reflect.Value { return reflect.ValueOf(p.Spec.SecurityContext).Elem() }, "spec.securityContext", changes)
	for i, v := range want.Spec.Volumes {
		eachField(want, func(p *corev1.Pod) reflect.Value { return reflect.ValueOf(&p.Spec.Volumes[i].VolumeSource).Elem() }, "spec.volumes["+v.Name+"]", changes)
		eachField(want, func(p *corev1.Pod) reflect.Value { return reflect.ValueOf(p.Spec.Volumes[i].EmptyDir).Elem() }, "spec.volumes["+v.Name+"].emptyDir", changes)
	}
	require.Greater(t, len(changes), 200)
	refused := 0
	for path, change := range changes {
		got := want.DeepCopy()
		change(got)
		require.NotEqual(t, want, got, path)
		err := verify(want, got)
		if slices.Contains(free, strings.TrimPrefix(path, "spec.")) {
			assert.NoError(t, err, path)
			continue
		}
		refused++
		if assert.Error(t, err, path) {
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			assert.Contains(t, err.Error(), path)
		}
	}
	assert.Equal(t, len(changes)-len(free), refused)
}

// eachField records a change of each field of a struct of the Pod.
func eachField(pod *corev1.Pod, of func(*corev1.Pod) reflect.Value, at string, into map[string]func(*corev1.Pod)) {
	kind := of(pod).Type()
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if name == "" { // embedded: its fields are tested separately
			continue
		}
		into[at+"."+name] = func(p *corev1.Pod) { other(of(p).Field(i)) }
	}
}

// other sets a value to a different value.
func other(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
			if v.Elem().Kind() == reflect.Bool {
				v.Elem().SetBool(true)
			}
			return
		}
		changed := reflect.New(v.Type().Elem())
		changed.Elem().Set(v.Elem())
		v.Set(changed)
		other(v.Elem())
	case reflect.Slice:
		v.Set(reflect.Append(slicesOf(v), reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.Zero(v.Type().Elem()))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[resource.Quantity]() {
			q := v.Interface().(resource.Quantity)
			q.Add(resource.MustParse("1"))
			v.Set(reflect.ValueOf(q))
			return
		}
		other(v.Field(0))
	default:
		panic("a field of a kind that isn't tried: " + v.Kind().String())
	}
}

func slicesOf(v reflect.Value) reflect.Value { return reflect.AppendSlice(reflect.Zero(v.Type()), v) }

// TestMetadataThatTheClusterChanges: metadata that adds devices, networks or policies is
// refused; metadata that only reports is accepted.
func TestMetadataThatTheClusterChanges(t *testing.T) {
	shape := shapeFor(samples["least"])
	shape.creation = "random"
	want := shape.generate("agents")
	labels := func(p *corev1.Pod) map[string]string { return p.Labels }
	annotations := func(p *corev1.Pod) map[string]string { return p.Annotations }
	for key, c := range map[string]struct {
		of      func(*corev1.Pod) map[string]string
		refused bool
	}{
		"role":                                 {labels, true},
		managedLabel:                           {labels, true},
		"kubernetes.io/metadata.name":          {labels, true},
		"topology.kubernetes.io/zone":          {labels, false},
		"eks.amazonaws.com/fargate-profile":    {labels, false},
		"eks.amazonaws.com/other":              {labels, true},
		"autopilot.gke.io/resource-adjustment": {annotations, false},
		"autopilot.gke.io/warden-version":      {annotations, false},
		"autopilot.gke.io/other":               {annotations, true},
		"CapacityProvisioned":                  {annotations, false},
		"Logging":                              {annotations, false},
		creationNote:                           {annotations, true},
		"cdi.k8s.io/gpu":                       {annotations, true},
		"k8s.v1.cni.cncf.io/networks":          {annotations, true},
		"io.kubernetes.cri-o.userns-mode":      {annotations, true},
		"topology.kubernetes.io/a":             {annotations, true},
		"container.apparmor.security.beta.kubernetes.io/programs": {annotations, true},
		"cni.projectcalico.org/ipAddrs":                           {annotations, true},
		"cni.projectcalico.org/podIPs":                            {annotations, false},
		"kubernetes.io/limit-ranger":                              {annotations, false},
		"k8s.v1.cni.cncf.io/network-status":                       {annotations, false},
		"k8s.v1.cni.cncf.io/networks-status":                      {annotations, false},
		"security.openshift.io/validated-scc-subject-type":        {annotations, false},
	} {
		got := want.DeepCopy()
		c.of(got)[key] = "other"
		for who, made := range map[string]*corev1.Pod{"its creator": want, "who finds it": shapeOf(got).generate("agents")} {
			err := verify(made, got)
			if !c.refused || key == creationNote && made != want {
				require.NoError(t, err, "%s, to %s", key, who)
				continue
			}
			require.ErrorContains(t, err, "["+key+"]", "to %s", who)
		}
	}
	for says, change := range map[string]func(*corev1.Pod){
		"metadata.labels[" + managedLabel + "]":      func(p *corev1.Pod) { delete(p.Labels, managedLabel) },
		"metadata.annotations[" + creationNote + "]": func(p *corev1.Pod) { p.Annotations = nil },
		"metadata.finalizers":                        func(p *corev1.Pod) { p.Finalizers = []string{"example.com/stay"} },
	} {
		got := want.DeepCopy()
		change(got)
		require.ErrorContains(t, verify(want, got), says)
	}
}

// TestWhatAWebhookDoes tests the changes of §1 of the design by name, where the change is nested
// deeper than one field.
func TestWhatAWebhookDoes(t *testing.T) {
	for path, change := range map[string]func(*corev1.Pod){
		"spec.containers[programs].securityContext.capabilities.add": func(p *corev1.Pod) {
			c := p.Spec.Containers[0].SecurityContext.Capabilities
			c.Add = append(c.Add, "SYS_ADMIN")
		},
		"spec.containers[programs].securityContext.capabilities.drop": func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Capabilities.Drop = nil },
		"spec.containers[holder].securityContext.runAsUser":           func(p *corev1.Pod) { p.Spec.Containers[1].SecurityContext.RunAsUser = new(int64(1)) },
		"spec.securityContext.seccompProfile.type":                    func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile.Type = "Unconfined" },
		"spec.securityContext.sysctls":                                func(p *corev1.Pod) { p.Spec.SecurityContext.Sysctls = nil },
		"spec.containers":                                             func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"}) },
		"spec.initContainers":                                         func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "proxy-init"}} },
		"spec.volumes":                                                func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "token"}) },
		"spec.volumes[state].emptyDir.sizeLimit":                      func(p *corev1.Pod) { p.Spec.Volumes[1].EmptyDir.SizeLimit = nil },
		"spec.volumes[state].hostPath": func(p *corev1.Pod) {
			p.Spec.Volumes[1].HostPath = &corev1.HostPathVolumeSource{Path: "/"}
		},
		"spec.containers[programs].resources.limits": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Ti")
		},
		"spec.containers[programs].env":                         func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HTTP_PROXY"}} },
		"spec.containers[programs].volumeMounts":                func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = p.Spec.Containers[1].VolumeMounts[:1] },
		"spec.containers[programs].volumeMounts[state].subPath": func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].SubPath = "" },
		"spec.containers[holder].lifecycle":                     func(p *corev1.Pod) { p.Spec.Containers[1].Lifecycle = &corev1.Lifecycle{} },
		"spec.dnsConfig.nameservers[0]":                         func(p *corev1.Pod) { p.Spec.DNSConfig.Nameservers[0] = "10.0.0.10" },
		"metadata.labels[wisbox.dev/session]":                   func(p *corev1.Pod) { p.Labels[sessionLabel] = "another" },
		"spec.containers[programs].image":                       func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" },
		"spec.hostUsers":                                        func(p *corev1.Pod) { p.Spec.HostUsers = new(true) },
		"spec.os":                                               func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
	} {
		want := shapeFor(samples["least"]).generate("agents")
		got := want.DeepCopy()
		change(got)
		err := verify(want, got)
		if assert.Error(t, err, path) {
			assert.Contains(t, err.Error(), "the cluster changed "+path+";")
			assert.Contains(t, err.Error(), "exempt the namespace agents")
		}
		assert.Equal(t, verify(shapeOf(got).generate("agents"), got) != nil, !slices.Contains([]string{
			"spec.containers[programs].resources.limits", "metadata.labels[wisbox.dev/session]",
		}, path), "%s, to who finds it later and doesn't know what was asked for", path)
	}
	stronger := shapeFor(samples["least"]).generate("agents")
	stronger.Spec.HostUsers, stronger.Spec.OS = new(false), &corev1.PodOS{Name: corev1.Linux}
	require.NoError(t, verify(shapeFor(samples["least"]).generate("agents"), stronger))
}

// TestAPodThatIsDebugged: the Pod is refused, and the error explains the cause.
func TestAPodThatIsDebugged(t *testing.T) {
	pod := shapeFor(samples["least"]).generate("agents")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
	says(t, verify(shapeOf(pod).generate("agents"), pod), tool.Unavailable, "the Pod of session box has spec.ephemeralContainers, as of kubectl debug", "remove the session, and open it again")
}
