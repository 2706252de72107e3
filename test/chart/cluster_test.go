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

// cluster is a control plane with Helm's releases in it. Nobody runs its pods: make test-cluster has a kubelet.
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
	c := &cluster{cp, admin}
	c.rootCA(t, "default")
	return c
}

// kubectl runs kubectl as the admin, with a text to read, and returns what it prints.
func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.cp.Kubectl(t.Context(), stdin, args...)
	expect.NoError(t, err)
	return out
}

// namespace makes one in which one of the Pod Security Standards holds.
func (c *cluster) namespace(t *testing.T, name, standard string) {
	t.Helper()
	c.kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+", labels: {pod-security.kubernetes.io/enforce: "+standard+"}}}", "create", "-f", "-")
	c.rootCA(t, name)
}

// rootCA makes the ConfigMap that kube-controller-manager makes in each namespace.
func (c *cluster) rootCA(t *testing.T, namespace string) {
	t.Helper()
	c.kubectl(t, "", "-n", namespace, "create", "configmap", "kube-root-ca.crt", "--from-literal=ca.crt="+string(c.cp.CA()))
}

// ofHelm are all objects of the cluster that Helm has made, but for its own Secrets.
func (c *cluster) ofHelm(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(c.kubectl(t, "", "api-resources", "--verbs=list", "--output=name"))
	return pages.Matches(`(?m)^(\S+/\S+)$`, c.kubectl(t, "", "get", strings.Join(kinds, ","), "--all-namespaces", "--selector=app.kubernetes.io/managed-by=Helm", "--output=name"))
}

// release is an installation of the chart.
type release struct {
	c         *cluster
	namespace string
}

// newRelease is one in a new namespace, which takes only pods that are restricted.
func (c *cluster) newRelease(t *testing.T, namespace string) *release {
	t.Helper()
	c.namespace(t, namespace, "restricted")
	return &release{c, namespace}
}

// args are those of Helm for the release, as the admin.
func (r *release) args(command string, more ...string) []string {
	return append([]string{command, "listproxy", "--kubeconfig", r.c.cp.KubeconfigPath(controlplane.Admin), "--namespace", r.namespace}, more...)
}

// apply installs or upgrades the release with values.
func (r *release) apply(t *testing.T, text string, flags ...string) string {
	t.Helper()
	out, err := r.tryApply(t, text, flags...)
	expect.NoError(t, err)
	return out
}

// tryApply is apply where something may go wrong.
func (r *release) tryApply(t *testing.T, text string, flags ...string) (string, error) {
	t.Helper()
	return helm(t, append(r.args("upgrade", chart, "--install", "-f", values(t, text)), flags...)...)
}

func (r *release) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := r.c.admin.AppsV1().Deployments(r.namespace).Get(t.Context(), "listproxy", metav1.GetOptions{})
	expect.NoError(t, err)
	return d
}

// certificate is the Secret with the serving certificate.
func (r *release) certificate(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := r.c.admin.CoreV1().Secrets(r.namespace).Get(t.Context(), "listproxy-tls", metav1.GetOptions{})
	expect.NoError(t, err)
	return s
}

// verify says what is wrong with a serving certificate for the names.
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

// TestInstall: from nothing to an installation, upgraded, and away again.
func TestInstall(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "proxies")
	r.apply(t, "{}")
	expect.NoError(t, verify(r.certificate(t), "listproxy", "listproxy.proxies.svc", "listproxy.proxies.svc.cluster.local", "kubernetes.default.svc", "localhost", "127.0.0.1"))
	t.Run("restricted", func(t *testing.T) { checkRestricted(t, r) })
	t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, r) })
	t.Run("autoscaling", func(t *testing.T) { checkAutoscaling(t, r) })
	if len(c.ofHelm(t)) == 0 {
		t.Error("this test does not see what Helm makes")
	}
	mustHelm(t, r.args("uninstall")...)
	if left := c.ofHelm(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// checkRestricted: a pod that is not restricted would not have been taken.
func checkRestricted(t *testing.T, r *release) {
	lax := r.deployment(t).Spec.Template.Spec
	lax.SecurityContext = nil
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lax"}, Spec: lax}
	_, err := r.c.admin.CoreV1().Pods(r.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod that is not restricted: %v", err)
	}
}

// The Secrets with the chart's certificate, by the name that docs/operate.md gives, and with another.
const madeSecret, ownSecret = "listproxy-tls", "our-own"

// checkUpgrade: what need not change does not, above all what clients trust.
func checkUpgrade(t *testing.T, r *release) {
	r.apply(t, "{}")
	pods, made := r.deployment(t).Spec.Template, r.certificate(t)
	r.apply(t, "replicas: 3")
	more := r.deployment(t).Spec
	expect.Same(t, int32(3), *more.Replicas)
	expect.Same(t, pods, more.Template)
	if !cmp.Equal(made.Data, r.certificate(t).Data) { // with a key, which is not printed
		t.Error("the certificate is another one after an upgrade")
	}

	// With another name the certificate is another one, of the CA that clients trust.
	r.apply(t, "tls: {extraHosts: [lists.example.com, 10.1.2.3]}")
	renewed := r.certificate(t)
	expect.NoError(t, verify(renewed, "listproxy.proxies.svc", "lists.example.com", "10.1.2.3"))
	expect.Same(t, made.Data["ca.crt"], renewed.Data["ca.crt"])

	// Another's certificate, and back.
	_, err := r.tryApply(t, "tls: {mode: existing, existingSecret: "+madeSecret+"}")
	if err == nil || !strings.Contains(err.Error(), "tls.existingSecret: ") || !strings.Contains(err.Error(), "copy it") {
		t.Errorf("tls.existingSecret names what goes with the upgrade: %v", err)
	}
	r.own(t, renewed.Data["tls.crt"], renewed.Data["tls.key"])
	r.apply(t, "tls: {mode: existing, existingSecret: "+ownSecret+"}")
	expect.Same(t, ownSecret, r.mounted(t))
	mustHelm(t, r.args("rollback")...)
	expect.Same(t, madeSecret, r.mounted(t))
	back := r.certificate(t)
	if !cmp.Equal(renewed.Data, back.Data) || back.Type != corev1.SecretTypeTLS {
		t.Error("another certificate after a rollback: no client trusts its CA")
	}
}

// own makes the Secret with the other.
func (r *release) own(t *testing.T, cert, key []byte) {
	t.Helper()
	r.c.kubectl(t, "", "-n", r.namespace, "create", "secret", "tls", ownSecret, "--cert="+values(t, string(cert)), "--key="+values(t, string(key)))
}

// mounted is the Secret with the serving certificate that pods mount.
func (r *release) mounted(t *testing.T) string {
	t.Helper()
	volumes := r.deployment(t).Spec.Template.Spec.Volumes
	return volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "tls" })].Secret.SecretName
}

// checkAutoscaling: as docs/operate.md has it, Helm leaves alone how many replicas somebody else
// has set, when it does not say so any more; and does not take it back unless it is told to.
func checkAutoscaling(t *testing.T, r *release) {
	r.c.kubectl(t, "", "-n", r.namespace, "scale", "--replicas=4", "deployment/listproxy")
	r.apply(t, "autoscaling: {enabled: true}")
	expect.Same(t, int32(4), *r.deployment(t).Spec.Replicas)
	if _, err := r.tryApply(t, "autoscaling: {enabled: false}"); err == nil || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("back again: %v", err)
	}
	r.apply(t, "autoscaling: {enabled: false}", "--force-conflicts")
	expect.Same(t, int32(2), *r.deployment(t).Spec.Replicas)
}

// team is the namespace of pods that are clients.
const team = "team-pods"

// TestInjection: the chart's policy changes pods with the label when they are made, wholly or not at all, and others not; and
// not any more without its binding, or when the chart has taken the policy away.
func TestInjection(t *testing.T) {
	c := newCluster(t)
	c.namespace(t, team, "privileged")
	c.kubectl(t, "", "-n", team, "create", "serviceaccount", "robot")
	r := c.newRelease(t, "listproxy") // as in the page
	const clients = "service: {clusterIP: 10.0.0.100}, clients: {inject: true, namespaces: [" + team + "]}"
	r.apply(t, "{"+clients+"}")
	labelled := map[string]string{"listproxy.io/client": "true"}
	isChanged := func() bool { return len(c.create(t, labelled, plain()).Spec.HostAliases) > 0 }
	poll.Until(t, patience, "kube-apiserver knows the policy", isChanged)
	r.checkInjection(t, labelled)
	r.shell(t, "")(told(t, "kubectl", "delete mutatingadmissionpolicybinding"))
	poll.Until(t, patience, "without the binding the label means nothing", func() bool { return !isChanged() })
	r.apply(t, "{service: {clusterIP: 10.0.0.100}}")
	for _, left := range c.ofHelm(t) {
		if strings.HasPrefix(left, "mutatingadmissionpolic") || left == "configmap/listproxy-client" {
			t.Errorf("left behind: %s", left)
		}
	}
}

// plain is a pod that knows nothing of listproxy.
func plain() corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: "robot",
		InitContainers:     []corev1.Container{{Name: "first", Image: "first"}},
		Containers:         []corev1.Container{{Name: "robot", Image: "robot", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
	}
}

// create makes a pod, and returns it as kube-apiserver makes it.
func (c *cluster) create(t *testing.T, labels map[string]string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Labels: labels}, Spec: spec}
	made, err := c.admin.CoreV1().Pods(team).Create(t.Context(), pod, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made
}

// checkInjection: a pod is changed wholly or not at all.
func (r *release) checkInjection(t *testing.T, labels map[string]string) {
	t.Helper()
	const host, port, name, address = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "kubernetes.default.svc", "10.0.0.100"
	mount := func(volumes ...corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.AutomountServiceAccountToken = new(bool)
			for i, v := range volumes {
				spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", i), VolumeSource: v})
			}
		}
	}
	set := func(v corev1.EnvVar) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.InitContainers[0].Env = []corev1.EnvVar{v} }
	}
	alias := func(address, name string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.HostAliases = []corev1.HostAlias{{IP: address, Hostnames: []string{name}}}
		}
	}
	token := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}}
	root := corev1.LocalObjectReference{Name: "kube-root-ca.crt"}
	for row, tt := range map[string]struct {
		change   func(spec *corev1.PodSpec)
		injected bool
	}{
		"nothing of its own": {func(*corev1.PodSpec) {}, true},
		"no sources": {func(spec *corev1.PodSpec) {
			spec.Volumes = []corev1.Volume{{Name: "empty", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
		}, true},
		"a host by value":               {set(corev1.EnvVar{Name: host, Value: "192.0.2.1"}), false},
		"a host from elsewhere":         {set(corev1.EnvVar{Name: host, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}}), false},
		"a port":                        {set(corev1.EnvVar{Name: port, Value: "6443"}), false},
		"our host":                      {set(corev1.EnvVar{Name: host, Value: name}), true},
		"our port":                      {set(corev1.EnvVar{Name: port, Value: "443"}), true},
		"an alias of another name":      {alias(address, "listproxy.local"), true},
		"our name at another address":   {alias("192.0.2.1", name), false},
		"a token in a Secret":           {mount(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}}), false},
		"the CA in a volume of its own": {mount(token, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: root}}), false},
		"the CA in a projected volume": {mount(token, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: root}},
		}}}), true},
	} {
		spec := plain()
		tt.change(&spec)
		text, err := yaml.Marshal(r.c.create(t, labels, spec).Spec)
		expect.NoError(t, err)
		found := func(part string) int { return strings.Count(string(text), part) }
		got := []int{
			found(host + "\n    value: " + name), found(port + "\n    value: \"443\""), // in each container
			found("- " + name + "\n  ip: " + address), found("name: listproxy-client"),
		}
		want := []int{0, 0, 0, 0}
		if tt.injected {
			want = []int{2, 2, 1, 1}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: host, port, alias and CA are there %v times, want %v\n%s", row, got, want, text)
		}
	}
}

// TestBypass: the Service leads to the API servers, if it is known where they are, and back again; also where
// another tool than Helm applies what Helm renders.
func TestBypass(t *testing.T) {
	c := newCluster(t)
	r := c.newRelease(t, "listproxy")
	if _, err := r.tryApply(t, "{bypass: true}"); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("a bypass to API servers that nobody knows: %v", err)
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

// shell runs command lines of the pages, on this cluster and with more values.
func (r *release) shell(t *testing.T, text string) func(line string) string {
	t.Helper()
	admin := r.c.cp.KubeconfigPath(controlplane.Admin)
	here := strings.NewReplacer("helm template", binary+" template --kubeconfig "+admin, "charts/listproxy", chart,
		"-f values.yaml", "-f "+values(t, text), "kubectl ", r.c.cp.Binaries().Kubectl+" --kubeconfig "+admin+" ")
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
