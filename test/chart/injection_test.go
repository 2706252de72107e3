package chart

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// team is the namespace of client pods.
const team = "team-pods"

// TestInjection: the chart's admission policy makes pods with the label listproxy.io/client use listproxy, unless they have
// settings of their own (injectionCase). Without the policy's binding it changes no pod. An upgrade without clients.inject
// removes the policy.
func TestInjection(t *testing.T) {
	c := newCluster(t)
	c.createNamespace(t, team, "privileged")
	c.kubectl(t, "", "-n", team, "create", "serviceaccount", "robot")
	r := c.newRelease(t, "listproxy") // the namespace in docs/clients.md
	r.apply(t, "{service: {clusterIP: "+serviceAddress+"}, clients: {inject: true, namespaces: ["+team+"]}}")
	labelled := map[string]string{"listproxy.io/client": "true"}
	isChanged := func() bool { return len(c.createPod(t, labelled, plainPodSpec()).Spec.HostAliases) > 0 }

	// With the policy.
	poll.Until(t, patience, "kube-apiserver applies the policy", isChanged)
	r.checkInjection(t, labelled)
	if unlabelled := c.createPod(t, nil, plainPodSpec()); len(unlabelled.Spec.HostAliases) > 0 {
		t.Error("a pod without the label was changed")
	}

	// Without its binding.
	run := r.shell(t, "")
	run(findCommand(t, "kubectl", "delete mutatingadmissionpolicybinding"))
	poll.Until(t, patience, "without the binding the label means nothing", func() bool { return !isChanged() })

	// Without clients.inject.
	r.apply(t, "{service: {clusterIP: "+serviceAddress+"}}")
	for _, left := range c.helmObjects(t) {
		if strings.HasPrefix(left, "mutatingadmissionpolic") || left == "configmap/listproxy-client" {
			t.Errorf("left behind: %s", left)
		}
	}
}

// plainPodSpec returns a pod that knows nothing of listproxy.
func plainPodSpec() corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: "robot",
		InitContainers:     []corev1.Container{{Name: "first", Image: "first"}},
		Containers:         []corev1.Container{{Name: "robot", Image: "robot", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
	}
}

// createPod creates a pod, and returns it as admission has changed it.
func (c *cluster) createPod(t *testing.T, labels map[string]string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Labels: labels}, Spec: spec}
	pod, err := c.admin.CoreV1().Pods(team).Create(t.Context(), pod, metav1.CreateOptions{})
	expect.NoError(t, err)
	return pod
}

// The environment variables, the name and the address that the policy gives to pods.
const (
	hostVariable, portVariable = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
	serverName                 = "kubernetes.default.svc"
	serviceAddress             = "10.0.0.100" // of listproxy's Service
)

// The next three functions return a function that changes a pod, for injectionCase.change.

// mount adds volumes, and keeps admission from adding a volume with the token of the service account.
func mount(volumes ...corev1.VolumeSource) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.AutomountServiceAccountToken = new(bool)
		for i, v := range volumes {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", i), VolumeSource: v})
		}
	}
}

// setEnv gives a container an environment variable.
func setEnv(v corev1.EnvVar) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.InitContainers[0].Env = []corev1.EnvVar{v} }
}

// alias gives the pod a host alias: an address for a name.
func alias(address, name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.HostAliases = []corev1.HostAlias{{IP: address, Hostnames: []string{name}}}
	}
}

// injectionCase is a pod that the policy changes, or leaves as it is. It leaves a pod with one of these settings of its own:
//
//   - a container with another API server's host or port
//   - an alias of the API server's name for another address
//   - a token or the CA in another volume than a projected one
type injectionCase struct {
	name         string
	change       func(spec *corev1.PodSpec) // of plainPodSpec
	wantInjected bool
}

func injectionCases() []injectionCase {
	tokenVolume := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}}
	rootCA := corev1.LocalObjectReference{Name: "kube-root-ca.crt"}
	volumeOfCA := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: rootCA}}
	projectedCA := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: rootCA}},
	}}}
	emptyVolume := corev1.Volume{Name: "empty", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}
	hostIP := corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}
	return []injectionCase{
		{name: "nothing of its own", change: func(*corev1.PodSpec) {}, wantInjected: true},
		{
			name:   "projected volume without sources",
			change: func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{emptyVolume} }, wantInjected: true,
		},
		{name: "own host by value", change: setEnv(corev1.EnvVar{Name: hostVariable, Value: "192.0.2.1"})},
		{name: "own host by reference", change: setEnv(corev1.EnvVar{Name: hostVariable, ValueFrom: &hostIP})},
		{name: "own port", change: setEnv(corev1.EnvVar{Name: portVariable, Value: "6443"})},
		{name: "listproxy's host already", change: setEnv(corev1.EnvVar{Name: hostVariable, Value: serverName}), wantInjected: true},
		{name: "listproxy's port already", change: setEnv(corev1.EnvVar{Name: portVariable, Value: "443"}), wantInjected: true},
		{name: "alias of another name", change: alias(serviceAddress, "listproxy.local"), wantInjected: true},
		{name: "alias of the name, another address", change: alias("192.0.2.1", serverName)},
		{name: "token in a Secret", change: mount(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}})},
		{name: "CA in its own volume", change: mount(tokenVolume, volumeOfCA)},
		{name: "CA in a projected volume", change: mount(tokenVolume, projectedCA), wantInjected: true},
	}
}

// checkInjection checks that the policy makes all its additions to a pod, the variables to each of the two containers, or none
// if the pod has settings of its own.
func (r *release) checkInjection(t *testing.T, labels map[string]string) {
	t.Helper()
	// additions are the numbers of additions. They are counted in the pod's YAML, since they are in several places.
	type additions struct{ hosts, ports, aliases, mountedCAs int }
	for _, tt := range injectionCases() {
		spec := plainPodSpec()
		tt.change(&spec)
		text, err := yaml.Marshal(r.c.createPod(t, labels, spec).Spec)
		expect.NoError(t, err)
		count := func(part string) int { return strings.Count(string(text), part) }
		got := additions{
			hosts:      count(hostVariable + "\n    value: " + serverName),
			ports:      count(portVariable + "\n    value: \"443\""),
			aliases:    count("- " + serverName + "\n  ip: " + serviceAddress),
			mountedCAs: count("name: listproxy-client"),
		}
		var want additions
		if tt.wantInjected {
			want = additions{hosts: 2, ports: 2, aliases: 1, mountedCAs: 1}
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v in\n%s", tt.name, got, want, text)
		}
	}
}
