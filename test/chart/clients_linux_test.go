package chart

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Pods that are clients: robot is their account, which may list the pods of its namespace, team.
const robot, team = "robot", "team-pods"

const listOfTeam = "/api/v1/namespaces/" + team + "/pods?resourceVersion=0"

func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	expect.NoError(t, err)
}

func (c *cluster) robot(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: robot}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: robot}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: robot},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: robot},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: robot, Namespace: team}},
	}
	c.namespace(t, team)
	_, err := c.admin.CoreV1().ServiceAccounts(team).Create(t.Context(), account, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = c.admin.RbacV1().Roles(team).Create(t.Context(), role, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = c.admin.RbacV1().RoleBindings(team).Create(t.Context(), binding, metav1.CreateOptions{})
	expect.NoError(t, err)
}

// rootCA makes the ConfigMap that kube-controller-manager makes in each namespace.
func (c *cluster) rootCA(t *testing.T, namespace string) {
	t.Helper()
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(c.cp.CA())}}
	_, err := c.admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), ca, metav1.CreateOptions{})
	expect.NoError(t, err)
}

// documented is the pod in docs/clients.md that has some words: its only container gets these arguments,
// and the port of the release's Service.
func (r *release) documented(t *testing.T, words string, args ...string) corev1.PodSpec {
	t.Helper()
	page, err := os.ReadFile(repository + "/docs/clients.md")
	expect.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)\n```yaml\n(spec:.*?)```").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(block[1], words) {
			continue
		}
		var pod struct{ Spec corev1.PodSpec }
		expect.NoError(t, yaml.UnmarshalStrict([]byte(block[1]), &pod))
		pod.Spec.SecurityContext = r.deployment(t).Spec.Template.Spec.SecurityContext
		c := &pod.Spec.Containers[0]
		c.Args = args
		for i := range c.Env {
			if c.Env[i].Name == "KUBERNETES_SERVICE_PORT" {
				c.Env[i].Value = strconv.Itoa(r.https)
			}
		}
		return pod.Spec
	}
	t.Fatalf("no pod in docs/clients.md has %q", words)
	return corev1.PodSpec{}
}

// injected is a pod that knows nothing of listproxy, with a label, as kube-apiserver makes it.
func (r *release) injected(t *testing.T, labels map[string]string, args ...string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "robot-", Labels: labels},
		Spec: corev1.PodSpec{
			ServiceAccountName: robot,
			SecurityContext:    r.deployment(t).Spec.Template.Spec.SecurityContext,
			InitContainers:     []corev1.Container{{Name: "first", Image: "first", Args: args}},
			Containers:         []corev1.Container{{Name: robot, Image: robot, Args: args, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
		},
	}
	made, err := r.c.admin.CoreV1().Pods(team).Create(t.Context(), pod, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made
}

// checkPrometheus: promtool, with Prometheus' own discovery and the configuration in docs/clients.md, finds a
// pod, and has asked listproxy for it.
func (r *release) checkPrometheus(t *testing.T, listproxy *container) {
	t.Helper()
	page, err := os.ReadFile(repository + "/docs/clients.md")
	expect.NoError(t, err)
	block := regexp.MustCompile("(?s)\n```yaml\n(scrape_configs:.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/clients.md has no scrape_configs")
	}
	const address = "192.0.2.9"
	found := r.injected(t, nil)
	found.Status.PodIP, found.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	_, err = r.c.admin.CoreV1().Pods(team).UpdateStatus(t.Context(), found, metav1.UpdateOptions{})
	expect.NoError(t, err)
	mine := strings.Replace(string(block[1]), "role: pod\n", "role: pod\n        namespaces: {names: ["+team+"]}\n", 1) // whose pods the account may list
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, Data: map[string]string{"prometheus.yml": mine}}
	_, err = r.c.admin.CoreV1().ConfigMaps(team).Create(t.Context(), config, metav1.CreateOptions{})
	expect.NoError(t, err)
	pod := r.documented(t, "KUBECONFIG", "check", "service-discovery", "--timeout=3s", "/etc/prometheus/prometheus.yml", "pods")
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: config.Name},
	}}})
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/etc/prometheus", ReadOnly: true})
	if printed := r.c.runToEnd(t, team, pod, promtool)[robot]; !strings.Contains(printed, address) {
		t.Errorf("Prometheus finds:\n%s", printed)
	}
	hit := regexp.MustCompile(`"userAgent":"Prometheus/[^\n]*; hit`)
	poll.Until(t, patience, "what Prometheus has from memory is in the log", func() bool { return hit.MatchString(listproxy.log.String()) })
}

// TestWays: the pods of docs/clients.md, and those that the chart's policy changes, have lists from
// memory. When all replicas are away, they go on with what they have, past listproxy, and come back to
// it. The API server and listproxy have two addresses and one port, which is the Service's.
func TestWays(t *testing.T) {
	c := newClusterWith(t, controlplane.Options{ServiceAccounts: true})
	c.robot(t)
	c.rootCA(t, "default")
	c.rootCA(t, team)
	r := c.newRelease(t, "listproxy", "listproxy") // as in the page
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.cp.URL(), "https://"))
	expect.NoError(t, err)
	r.https, err = strconv.Atoi(port)
	expect.NoError(t, err)
	with := func(more string) string {
		return fmt.Sprintf("{bindAddress: 127.0.0.2, ports: {https: %[1]d}, service: {port: %[1]d, clusterIP: 10.0.0.100}, %[2]s}", r.https, more)
	}
	inject := "watches: true, log: {level: access}, clients: {inject: true, namespaces: [" + team + "]}"
	r.apply(t, with(inject))
	if _, err := r.tryApply(t, with(inject+", bypass: true")); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("a bypass to API servers that nobody knows: %v", err)
	}
	name, number, ready := "https", int32(r.https), true // #nosec G115 -- a port
	kubernetes := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{apiServer}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	_, err = c.admin.DiscoveryV1().EndpointSlices("default").Create(t.Context(), kubernetes, metav1.CreateOptions{})
	expect.NoError(t, err)

	// kubectl has client-go's own loading, rest.InClusterConfig too. It prints the headers of what comes.
	ask := []string{"get", "--raw", listOfTeam, "-v=8"}
	list := func(pod corev1.PodSpec) string { return c.runToEnd(t, team, pod, c.cp.Binaries().Kubectl)[robot] }
	fromMemory := func(pod corev1.PodSpec) {
		t.Helper()
		poll.Until(t, patience, "a list from memory", func() bool { return strings.Contains(list(pod), "; hit") })
	}
	straight := func(pod corev1.PodSpec) {
		t.Helper()
		if printed := list(pod); !strings.Contains(printed, "PodList") || strings.Contains(printed, "Cache-Status") {
			t.Errorf("not from the API server itself:\n%s", printed)
		}
	}
	labelled := map[string]string{"listproxy.io/client": "true"}
	ways := []corev1.PodSpec{r.documented(t, "KUBECONFIG", ask...), r.documented(t, "projected:", ask...)}
	poll.Until(t, patience, "kube-apiserver knows the policy", func() bool { return len(r.injected(t, labelled, ask...).Spec.HostAliases) > 0 })
	ways = append(ways, r.injected(t, labelled, ask...).Spec)
	for round := range 2 {
		pod := r.run(t)
		for _, way := range ways {
			fromMemory(way)
		}
		if round == 0 {
			r.checkPrometheus(t, pod)
		}
		straight(r.injected(t, nil, ask...).Spec)
		pod.stop(t)
		if notes := r.apply(t, with(inject+", bypass: true")); !strings.Contains(notes, "WARNING: bypass is on") {
			t.Errorf("the notes:\n%s", notes)
		}
		if hosts := c.hosts(t); strings.Contains(hosts, "127.0.0.2 listproxy.listproxy.svc") {
			t.Errorf("the Service still leads to listproxy's pods:\n%s", hosts)
		}
		for _, way := range ways {
			straight(way)
		}
		r.apply(t, with(inject))
	}

	// A certificate of the cluster's own CA: pods trust it by themselves.
	cert, key, err := c.cp.IssueServingCert("listproxy.listproxy.svc", "kubernetes.default.svc")
	expect.NoError(t, err)
	own := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: ownSecret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": cert, "tls.key": key},
	}
	_, err = c.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), own, metav1.CreateOptions{})
	expect.NoError(t, err)
	r.apply(t, with("tls: {mode: existing, existingSecret: "+ownSecret+"}"))
	pod := r.run(t)
	fromMemory(r.documented(t, "# nothing else", ask...))
	pod.stop(t)

	if left, err := c.admin.DiscoveryV1().EndpointSlices(r.namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("left behind: %v, %v", left.Items, err)
	}
	poll.Until(t, patience, "without clients.inject the label means nothing", func() bool {
		return len(r.injected(t, labelled, ask...).Spec.HostAliases) == 0
	})
}
