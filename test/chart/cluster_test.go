package chart

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// cluster is a control plane, in which the tests install the chart. Nobody runs its pods: make test-cluster has a kubelet.
type cluster struct {
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	harness.Long(t)
	cp := harness.RunControlPlane(t, controlplane.Options{ServiceAccounts: true})
	admin, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	c := &cluster{cp: cp, admin: admin}
	c.createRootCA(t, "default")
	return c
}

// kubectl runs kubectl as the admin, and returns its output.
func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.cp.Kubectl(t.Context(), stdin, args...)
	expect.NoError(t, err)
	return out
}

// createNamespace creates a namespace that enforces one of the Pod Security Standards.
func (c *cluster) createNamespace(t *testing.T, name, standard string) {
	t.Helper()
	metadata := "{name: " + name + ", labels: {pod-security.kubernetes.io/enforce: " + standard + "}}"
	c.kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: "+metadata+"}", "create", "-f", "-")
	c.createRootCA(t, name)
}

// createRootCA creates the ConfigMap that kube-controller-manager creates in each namespace.
func (c *cluster) createRootCA(t *testing.T, namespace string) {
	t.Helper()
	c.kubectl(t, "", "-n", namespace, "create", "configmap", "kube-root-ca.crt", "--from-literal=ca.crt="+string(c.cp.CA()))
}

// helmObjects returns the names of all objects that Helm has created, without its own Secrets.
func (c *cluster) helmObjects(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(c.kubectl(t, "", "api-resources", "--verbs=list", "--output=name"))
	names := c.kubectl(t, "", "get", strings.Join(kinds, ","),
		"--all-namespaces", "--selector=app.kubernetes.io/managed-by=Helm", "--output=name")
	return pages.Matches(`(?m)^(\S+/\S+)$`, names)
}

// release is an installation of the chart.
type release struct {
	c         *cluster
	namespace string
}

// newRelease returns a release in a new namespace, which accepts only pods that are restricted (Pod Security Standards).
func (c *cluster) newRelease(t *testing.T, namespace string) *release {
	t.Helper()
	c.createNamespace(t, namespace, "restricted")
	return &release{c: c, namespace: namespace}
}

// args returns arguments for a command of Helm about the release, as the admin.
func (r *release) args(command string, more ...string) []string {
	kubeconfig := r.c.cp.KubeconfigPath(controlplane.Admin)
	return append([]string{command, "listproxy", "--kubeconfig", kubeconfig, "--namespace", r.namespace}, more...)
}

// apply installs or upgrades the release with values.
func (r *release) apply(t *testing.T, values string, flags ...string) string {
	t.Helper()
	out, err := r.tryApply(t, values, flags...)
	expect.NoError(t, err)
	return out
}

// tryApply is apply, but returns the error.
func (r *release) tryApply(t *testing.T, values string, flags ...string) (string, error) {
	t.Helper()
	return helm(t, append(r.args("upgrade", chart, "--install", "-f", writeValues(t, values)), flags...)...)
}

func (r *release) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := r.c.admin.AppsV1().Deployments(r.namespace).Get(t.Context(), "listproxy", metav1.GetOptions{})
	expect.NoError(t, err)
	return d
}

// certificate returns the Secret with the serving certificate.
func (r *release) certificate(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := r.c.admin.CoreV1().Secrets(r.namespace).Get(t.Context(), "listproxy-tls", metav1.GetOptions{})
	expect.NoError(t, err)
	return s
}

// verify returns an error unless a serving certificate is valid for all names.
func verify(s *corev1.Secret, names ...string) error {
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Data["ca.crt"])
	for _, name := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			return err
		}
	}
	return nil
}

// TestInstall: the chart can be installed, upgraded and uninstalled, which leaves nothing behind.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "proxies")
	r.apply(t, "{}")
	expect.NoError(t, verify(r.certificate(t), "listproxy", "listproxy.proxies.svc", "listproxy.proxies.svc.cluster.local",
		"kubernetes.default.svc", "localhost", "127.0.0.1"))
	t.Run("restricted", func(t *testing.T) { checkRestricted(t, r) })
	t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, r) })
	t.Run("autoscaling", func(t *testing.T) { checkAutoscaling(t, r) })
	if len(c.helmObjects(t)) == 0 {
		t.Error("no objects of Helm found: this test could not see what is left behind")
	}
	mustHelm(t, r.args("uninstall")...)
	if left := c.helmObjects(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// checkRestricted: the namespace accepts a pod like the chart's, and refuses it without its security context, which is not
// restricted.
func checkRestricted(t *testing.T, r *release) {
	t.Helper()
	create := func(name string, spec corev1.PodSpec) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		_, err := r.c.admin.CoreV1().Pods(r.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	spec := r.deployment(t).Spec.Template.Spec
	expect.NoError(t, create("restricted", spec))
	spec.SecurityContext = nil
	if err := create("lax", spec); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod that is not restricted: got %v, want a violation of PodSecurity", err)
	}
}

const (
	chartSecret = "listproxy-tls" // with the chart's certificate; docs/operate.md names it
	ownSecret   = "our-own"       // with a certificate that is not the chart's
)

// checkUpgrade: an upgrade changes neither pods nor the certificate without need, and never the CA that clients trust.
func checkUpgrade(t *testing.T, r *release) {
	t.Helper()
	r.apply(t, "{}")
	pods, first := r.deployment(t).Spec.Template, r.certificate(t)
	r.apply(t, "replicas: 3")
	scaled := r.deployment(t).Spec
	expect.Same(t, int32(3), *scaled.Replicas)
	expect.Same(t, pods, scaled.Template)
	if !cmp.Equal(first.Data, r.certificate(t).Data) { // not expect.Same, which would print the key
		t.Error("an upgrade changed the certificate")
	}

	// More host names need a new certificate, of the same CA.
	r.apply(t, "tls: {extraHosts: [lists.example.com, 10.1.2.3]}")
	renewed := r.certificate(t)
	expect.NoError(t, verify(renewed, "listproxy.proxies.svc", "lists.example.com", "10.1.2.3"))
	expect.Same(t, first.Data["ca.crt"], renewed.Data["ca.crt"])

	// The chart's own Secret as an existing one is refused: the upgrade would delete it.
	_, err := r.tryApply(t, "tls: {mode: existing, existingSecret: "+chartSecret+"}")
	if err == nil || !strings.Contains(err.Error(), "tls.existingSecret: ") || !strings.Contains(err.Error(), "copy it") {
		t.Errorf("tls.existingSecret is the chart's own Secret: got %v, want an error that says to copy it", err)
	}

	// A certificate that is not the chart's.
	r.createOwnSecret(t, renewed.Data["tls.crt"], renewed.Data["tls.key"])
	r.apply(t, "tls: {mode: existing, existingSecret: "+ownSecret+"}")
	expect.Same(t, ownSecret, r.mountedSecret(t))

	// Back to the chart's, which was kept.
	mustHelm(t, r.args("rollback")...)
	expect.Same(t, chartSecret, r.mountedSecret(t))
	back := r.certificate(t)
	if !cmp.Equal(renewed.Data, back.Data) || back.Type != corev1.SecretTypeTLS {
		t.Error("a rollback changed the certificate: no client trusts its CA")
	}
}

// createOwnSecret creates the Secret with a certificate that is not the chart's.
func (r *release) createOwnSecret(t *testing.T, cert, key []byte) {
	t.Helper()
	certFile, keyFile := writeFile(t, "tls.crt", cert), writeFile(t, "tls.key", key)
	r.c.kubectl(t, "", "-n", r.namespace, "create", "secret", "tls", ownSecret, "--cert="+certFile, "--key="+keyFile)
}

// mountedSecret returns the name of the Secret with the serving certificate that pods mount.
func (r *release) mountedSecret(t *testing.T) string {
	t.Helper()
	volumes := r.deployment(t).Spec.Template.Spec.Volumes
	i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
	return volumes[i].Secret.SecretName
}

// checkAutoscaling: as docs/operate.md says, with autoscaling Helm leaves the number of replicas to others, and takes it back
// only with --force-conflicts.
func checkAutoscaling(t *testing.T, r *release) {
	t.Helper()
	r.c.kubectl(t, "", "-n", r.namespace, "scale", "--replicas=4", "deployment/listproxy")
	r.apply(t, "autoscaling: {enabled: true}")
	expect.Same(t, int32(4), *r.deployment(t).Spec.Replicas)
	if _, err := r.tryApply(t, "autoscaling: {enabled: false}"); err == nil || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("autoscaling off: got %v, want a conflict about .spec.replicas", err)
	}
	r.apply(t, "autoscaling: {enabled: false}", "--force-conflicts")
	expect.Same(t, int32(2), *r.deployment(t).Spec.Replicas)
}

// team is the namespace of client pods.
const team = "team-pods"

// TestInjection: the chart's admission policy changes pods with the label, and no others; and none without its binding. An
// upgrade without clients.inject removes the policy.
func TestInjection(t *testing.T) {
	c := newCluster(t)
	c.createNamespace(t, team, "privileged")
	c.kubectl(t, "", "-n", team, "create", "serviceaccount", "robot")
	r := c.newRelease(t, "listproxy") // the namespace in docs/clients.md
	const clients = "service: {clusterIP: 10.0.0.100}, clients: {inject: true, namespaces: [" + team + "]}"
	r.apply(t, "{"+clients+"}")
	labelled := map[string]string{"listproxy.io/client": "true"}
	isChanged := func() bool { return len(c.createPod(t, labelled, plainPodSpec()).Spec.HostAliases) > 0 }
	poll.Until(t, patience, "kube-apiserver applies the policy", isChanged)
	r.checkInjection(t, labelled)
	run := r.shell(t, "")
	deleteBinding := findCommand(t, "kubectl", "delete mutatingadmissionpolicybinding")
	run(deleteBinding)
	poll.Until(t, patience, "without the binding the label means nothing", func() bool { return !isChanged() })
	r.apply(t, "{service: {clusterIP: 10.0.0.100}}")
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

// mount returns a change of a pod that mounts volumes of its own in place of the token that admission would mount.
func mount(volumes ...corev1.VolumeSource) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.AutomountServiceAccountToken = new(bool)
		for i, v := range volumes {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", i), VolumeSource: v})
		}
	}
}

// setEnv returns a change of a pod that gives a container an environment variable.
func setEnv(v corev1.EnvVar) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.InitContainers[0].Env = []corev1.EnvVar{v} }
}

// alias returns a change of a pod that gives it a host alias.
func alias(address, name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.HostAliases = []corev1.HostAlias{{IP: address, Hostnames: []string{name}}}
	}
}

// checkInjection: a pod is changed in all its containers, or, if something of its own is in the way, not at all.
func (r *release) checkInjection(t *testing.T, labels map[string]string) {
	t.Helper()
	tokenVolume := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}}
	rootCA := corev1.LocalObjectReference{Name: "kube-root-ca.crt"}
	for caseName, tt := range map[string]struct {
		change       func(spec *corev1.PodSpec)
		wantInjected bool
	}{
		"nothing of its own": {change: func(*corev1.PodSpec) {}, wantInjected: true},
		"projected volume without sources": {change: func(spec *corev1.PodSpec) {
			empty := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}
			spec.Volumes = []corev1.Volume{{Name: "empty", VolumeSource: empty}}
		}, wantInjected: true},
		"own host by value": {change: setEnv(corev1.EnvVar{Name: hostVariable, Value: "192.0.2.1"})},
		"own host by reference": {change: setEnv(corev1.EnvVar{Name: hostVariable, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"},
		}})},
		"own port":                           {change: setEnv(corev1.EnvVar{Name: portVariable, Value: "6443"})},
		"listproxy's host already":           {change: setEnv(corev1.EnvVar{Name: hostVariable, Value: serverName}), wantInjected: true},
		"listproxy's port already":           {change: setEnv(corev1.EnvVar{Name: portVariable, Value: "443"}), wantInjected: true},
		"alias of another name":              {change: alias(serviceAddress, "listproxy.local"), wantInjected: true},
		"alias of the name, another address": {change: alias("192.0.2.1", serverName)},
		"token in a Secret":                  {change: mount(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}})},
		"CA in its own volume": {change: mount(tokenVolume, corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: rootCA},
		})},
		"CA in a projected volume": {change: mount(tokenVolume, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: rootCA}}},
		}}), wantInjected: true},
	} {
		spec := plainPodSpec()
		tt.change(&spec)
		text, err := yaml.Marshal(r.c.createPod(t, labels, spec).Spec)
		expect.NoError(t, err)
		count := func(part string) int { return strings.Count(string(text), part) }
		type additions struct{ hosts, ports, aliases, cas int } // counted in YAML, since any container may have them
		got := additions{
			hosts:   count(hostVariable + "\n    value: " + serverName),
			ports:   count(portVariable + "\n    value: \"443\""),
			aliases: count("- " + serverName + "\n  ip: " + serviceAddress),
			cas:     count("name: listproxy-client"),
		}
		var want additions
		if tt.wantInjected {
			want = additions{hosts: 2, ports: 2, aliases: 1, cas: 1} // host and port in each container
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v in\n%s", caseName, got, want, text)
		}
	}
}

// TestBypass: with bypass the Service leads to the API servers, and back without it, also where another tool than Helm
// applies the rendered manifests. Without known API servers the chart refuses bypass.
func TestBypass(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "listproxy")
	if _, err := r.tryApply(t, "{bypass: true}"); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("bypass without known API servers: got %v, want an error", err)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.cp.URL(), "https://"))
	expect.NoError(t, err)
	c.kubectl(t, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: %s}]
endpoints: [{addresses: [192.0.2.1], conditions: {ready: true}}]
`, port), "create", "-f", "-")
	r.bypassWithoutHelm(t, "service: {clusterIP: 10.0.0.100}")
}

// bypassWithoutHelm runs the commands of docs/clients.md for a bypass, and those for the way back, where another tool has
// applied the rendered manifests, so that Helm does not own the objects.
func (r *release) bypassWithoutHelm(t *testing.T, values string) {
	t.Helper()
	run := r.shell(t, values)
	bypassed := func() bool {
		return strings.Contains(run("kubectl -n listproxy get service listproxy -o yaml"), "listproxy.io/bypass")
	}
	endpointSlices := func() string { return run("kubectl -n listproxy get endpointslices -o name --ignore-not-found") }
	const install = "helm template listproxy charts/listproxy -n listproxy -f values.yaml --no-hooks | kubectl apply -f -"
	run(install)
	run(findCommand(t, "helm", "--dry-run=server"))
	if !bypassed() || !strings.Contains(endpointSlices(), "bypass") {
		t.Errorf("the Service does not lead past listproxy: %t, %q", bypassed(), endpointSlices())
	}
	run(install)
	run(findCommand(t, "kubectl", "delete endpointslice"))
	if bypassed() || endpointSlices() != "" {
		t.Errorf("after the way back the Service leads past listproxy: %t, %q", bypassed(), endpointSlices())
	}
}

// shell returns a function that runs command lines of the pages on this cluster, with these values as values.yaml.
func (r *release) shell(t *testing.T, values string) func(line string) string {
	t.Helper()
	admin := r.c.cp.KubeconfigPath(controlplane.Admin)
	replacer := strings.NewReplacer("helm template", helmBinary+" template --kubeconfig "+admin, "charts/listproxy", chart,
		"-f values.yaml", "-f "+writeValues(t, values), "kubectl ", r.c.cp.Binaries().Kubectl+" --kubeconfig "+admin+" ")
	return func(line string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-ec", replacer.Replace(line)).CombinedOutput() // #nosec G204 -- of the page
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
}

// findCommand returns the first command line of the pages with a program that contains a text.
func findCommand(t *testing.T, program, part string) string {
	t.Helper()
	lines := documentedCommands(t, program)
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, part) })
	if i < 0 {
		t.Fatalf("no page has a command line %s … %s", program, part)
	}
	return lines[i]
}
