package chart

import (
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// team is the namespace of pods that are clients. Their account, robot, may list its pods.
const team = "team-pods"

// robot makes the namespace and the account.
func (c *cluster) robot(t *testing.T) {
	t.Helper()
	c.namespace(t, team, "privileged")
	for _, args := range []string{
		"create serviceaccount robot",
		"create role robot --verb=list,watch --resource=pods",
		"create rolebinding robot --role=robot --serviceaccount=" + team + ":robot",
	} {
		c.kubectl(t, "", append([]string{"-n", team}, strings.Fields(args)...)...)
	}
}

// documented is the pod in docs/clients.md that has some words: its only container gets these arguments,
// and the port of the release's Service.
func (r *release) documented(t *testing.T, words string, args ...string) corev1.PodSpec {
	t.Helper()
	var pod struct{ Spec corev1.PodSpec }
	expect.NoError(t, yaml.UnmarshalStrict([]byte(block(t, "clients.md", "spec:", words)), &pod))
	pod.Spec.SecurityContext = r.deployment(t).Spec.Template.Spec.SecurityContext
	c := &pod.Spec.Containers[0]
	c.Image, c.Args = "robot", args
	for i := range c.Env {
		if c.Env[i].Name == "KUBERNETES_SERVICE_PORT" {
			c.Env[i].Value = strconv.Itoa(r.https)
		}
	}
	return pod.Spec
}

// plain makes a pod that knows nothing of listproxy, with a label or none.
func (r *release) plain(t *testing.T, labels map[string]string, args ...string) *corev1.Pod {
	t.Helper()
	return r.c.create(t, team, labels, r.plainSpec(t, args...))
}

// plainSpec is what such a pod is.
func (r *release) plainSpec(t *testing.T, args ...string) corev1.PodSpec {
	t.Helper()
	return corev1.PodSpec{
		ServiceAccountName: "robot",
		SecurityContext:    r.deployment(t).Spec.Template.Spec.SecurityContext,
		InitContainers:     []corev1.Container{{Name: "first", Image: "first", Args: args}},
		Containers:         []corev1.Container{{Name: "robot", Image: "robot", Args: args, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
	}
}

// checkInjection: a pod is changed wholly or not at all.
func (r *release) checkInjection(t *testing.T, labels map[string]string) {
	t.Helper()
	const host = "KUBERNETES_SERVICE_HOST"
	for name, tt := range map[string]struct {
		change   func(spec *corev1.PodSpec)
		injected bool
	}{
		"nothing of its own": {func(*corev1.PodSpec) {}, true},
		"no sources": {func(spec *corev1.PodSpec) {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "empty", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}})
		}, true},
		"a host by value": {func(spec *corev1.PodSpec) {
			spec.InitContainers[0].Env = []corev1.EnvVar{{Name: host, Value: "192.0.2.1"}}
		}, false},
		"a host from elsewhere": {func(spec *corev1.PodSpec) {
			from := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}
			spec.Containers[0].Env = []corev1.EnvVar{{Name: host, ValueFrom: from}}
		}, false},
	} {
		spec := r.plainSpec(t)
		tt.change(&spec)
		made := r.c.create(t, team, labels, spec).Spec
		text, err := yaml.Marshal(made)
		expect.NoError(t, err)
		for _, part := range []string{"value: kubernetes.default.svc", "hostAliases:", "name: listproxy-client"} {
			if strings.Contains(string(text), part) != tt.injected {
				t.Errorf("%s: injected, %t: %s\n%s", name, tt.injected, part, text)
			}
		}
	}
}

// checkPrometheus: promtool, with Prometheus' own discovery and the configuration in docs/clients.md, finds a
// pod, and has asked listproxy for it.
func (r *release) checkPrometheus(t *testing.T, listproxy *container) {
	t.Helper()
	const address = "192.0.2.9"
	r.c.kubectl(t, "", "-n", team, "patch", "pod", r.plain(t, nil).Name, "--subresource=status", "-p", `{"status":{"podIP":"`+address+`","podIPs":[{"ip":"`+address+`"}]}}`)
	config := block(t, "clients.md", "scrape_configs:", "")
	config = strings.Replace(config, "role: pod\n", "role: pod\n        namespaces: {names: ["+team+"]}\n", 1) // whose pods the account may list
	r.c.kubectl(t, config, "-n", team, "create", "configmap", "prometheus", "--from-file=prometheus.yml=/dev/stdin")
	spec := r.documented(t, "KUBECONFIG", "check", "service-discovery", "--timeout=3s", "/etc/prometheus/prometheus.yml", "pods")
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "prometheus"},
	}}})
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/etc/prometheus", ReadOnly: true})
	if printed := r.c.runToEnd(t, r.c.create(t, team, nil, spec), promtool); !strings.Contains(printed, address) {
		t.Errorf("Prometheus finds:\n%s", printed)
	}
	hit := regexp.MustCompile(`"userAgent":"Prometheus/[^\n]*; hit`)
	poll.Until(t, patience, "what Prometheus has from memory is in the log", func() bool { return hit.MatchString(listproxy.log.String()) })
}

// TestWays: the pods of docs/clients.md, and those that the chart's policy changes, have lists from
// memory. When all replicas are away, they go on with what they have, past listproxy, and come back to
// it. The API server and listproxy have two addresses and one port, which is the Service's.
func TestWays(t *testing.T) {
	c := newCluster(t)
	c.robot(t)
	r := c.newRelease(t, "listproxy", "listproxy") // as in the page
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.cp.URL(), "https://"))
	expect.NoError(t, err)
	r.https, err = strconv.Atoi(port)
	expect.NoError(t, err)
	r.address = "127.0.0.2"
	const clients = "service: {clusterIP: 10.0.0.100}, watches: true, log: {level: access}, clients: {inject: true, namespaces: [" + team + "]}"
	r.apply(t, "{"+clients+"}")
	if _, err := r.tryApply(t, "{"+clients+", bypass: true}"); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("a bypass to API servers that nobody knows: %v", err)
	}
	c.kubectl(t, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: %s}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`, port, apiServer), "create", "-f", "-")

	// kubectl has client-go's own loading, rest.InClusterConfig too. It prints the headers of what comes.
	ask := []string{"get", "--raw", "/api/v1/namespaces/" + team + "/pods?resourceVersion=0", "-v=8"}
	list := func(pod *corev1.Pod) string { return c.runToEnd(t, pod, c.cp.Binaries().Kubectl) }
	fromMemory := func(pod *corev1.Pod) {
		t.Helper()
		poll.Until(t, patience, "a list from memory", func() bool { return strings.Contains(list(pod), "; hit") })
	}
	straight := func(pod *corev1.Pod) {
		t.Helper()
		if printed := list(pod); !strings.Contains(printed, "PodList") || strings.Contains(printed, "Cache-Status") {
			t.Errorf("not from the API server itself:\n%s", printed)
		}
	}
	labelled := map[string]string{"listproxy.io/client": "true"}
	isChanged := func() bool { return len(r.plain(t, labelled).Spec.HostAliases) > 0 }
	poll.Until(t, patience, "kube-apiserver knows the policy", isChanged)
	r.checkInjection(t, labelled)
	ways := []*corev1.Pod{
		c.create(t, team, nil, r.documented(t, "KUBECONFIG", ask...)),
		c.create(t, team, nil, r.documented(t, "projected:", ask...)),
		r.plain(t, labelled, ask...),
	}
	for round := range 2 {
		pod := r.run(t)
		for _, way := range ways {
			fromMemory(way)
		}
		if round == 0 {
			r.checkPrometheus(t, pod)
		}
		straight(r.plain(t, nil, ask...))
		pod.stop(t)
		if notes := r.apply(t, "{"+clients+", bypass: true}"); !strings.Contains(notes, "WARNING: bypass is on") {
			t.Errorf("the notes:\n%s", notes)
		}
		if hosts := c.hosts(t); strings.Contains(hosts, "127.0.0.2 listproxy.listproxy.svc") {
			t.Errorf("the Service still leads to listproxy's pods:\n%s", hosts)
		}
		for _, way := range ways {
			straight(way)
		}
		r.apply(t, "{"+clients+"}")
	}
	r.shell(t, "")(told(t, "kubectl", "delete mutatingadmissionpolicybinding"))
	poll.Until(t, patience, "without the binding the label means nothing", func() bool { return !isChanged() })

	// A certificate of the cluster's own CA: pods trust it by themselves.
	cert, key, err := c.cp.IssueServingCert("listproxy.listproxy.svc", "kubernetes.default.svc")
	expect.NoError(t, err)
	r.own(t, cert, key)
	r.apply(t, "{service: {clusterIP: 10.0.0.100}, tls: {mode: existing, existingSecret: "+ownSecret+"}}")
	pod := r.run(t)
	fromMemory(c.create(t, team, nil, r.documented(t, "# nothing else", ask...)))
	pod.stop(t)

	for _, left := range c.ofHelm(t) {
		if strings.HasPrefix(left, "endpointslice.") || strings.HasPrefix(left, "mutatingadmissionpolic") || left == "configmap/listproxy-client" {
			t.Errorf("left behind: %s", left)
		}
	}
	poll.Until(t, patience, "without clients.inject the label means nothing", func() bool { return !isChanged() })

	mustHelm(t, r.args("uninstall")...)
	r.bypassWithoutHelm(t, "service: {clusterIP: 10.0.0.100}")
}

// shell runs command lines of the pages, on this cluster and with more values.
func (r *release) shell(t *testing.T, text string) func(line string) string {
	t.Helper()
	admin := r.c.cp.KubeconfigPath(controlplane.Admin)
	here := strings.NewReplacer("helm template", binary+" template --kubeconfig "+admin, "charts/listproxy", chart,
		"-f values.yaml", "-f "+r.ports(t)+" -f "+values(t, text), "kubectl ", r.c.cp.Binaries().Kubectl+" --kubeconfig "+admin+" ")
	return func(line string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-ec", here.Replace(line)).CombinedOutput() // #nosec G204 -- of the page
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
}

// told is a command of the pages, of which this is a part.
func told(t *testing.T, command, part string) string {
	t.Helper()
	lines := commandsOf(t, command)
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, part) })
	if i < 0 {
		t.Fatalf("no page tells %s … %s", command, part)
	}
	return lines[i]
}

// bypassWithoutHelm runs the commands of docs/clients.md where another tool has applied what helm template
// renders, so that Helm does not own what is there; and those for the way back.
func (r *release) bypassWithoutHelm(t *testing.T, text string) {
	t.Helper()
	run := r.shell(t, text)
	bypassed := func() bool {
		return strings.Contains(run("kubectl -n listproxy get service listproxy -o yaml"), "listproxy.io/bypass")
	}
	slicesNow := func() string { return run("kubectl -n listproxy get endpointslices -o name --ignore-not-found") }
	tool := "helm template listproxy charts/listproxy -n listproxy -f values.yaml --no-hooks | kubectl apply -f -"
	run(tool)
	run(told(t, "helm", "--dry-run=server"))
	if !bypassed() || !strings.Contains(slicesNow(), "bypass") {
		t.Errorf("the Service does not lead past listproxy: %t, %q", bypassed(), slicesNow())
	}
	run(tool)
	run(told(t, "kubectl", "delete endpointslice"))
	if bypassed() || slicesNow() != "" {
		t.Errorf("after the way back the Service leads past listproxy: %t, %q", bypassed(), slicesNow())
	}
}
