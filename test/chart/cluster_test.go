package chart

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/pages"
)

// cluster is a control plane in which tests install the chart. There is no kubelet, so pods do not run.
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

// checkRestricted checks that the namespace, which enforces the restricted Pod Security Standard, accepts a pod like the
// chart's. It must refuse the same pod without the pod's security context.
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

// checkUpgrade checks that an upgrade changes neither pods nor the certificate without need, and never the CA that clients
// trust.
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

	// The chart takes a certificate that is not its own.
	cert, key := writeFile(t, "tls.crt", renewed.Data["tls.crt"]), writeFile(t, "tls.key", renewed.Data["tls.key"])
	r.c.kubectl(t, "", "-n", r.namespace, "create", "secret", "tls", ownSecret, "--cert="+cert, "--key="+key)
	r.apply(t, "tls: {mode: existing, existingSecret: "+ownSecret+"}")
	expect.Same(t, ownSecret, r.mountedSecret(t))

	// A rollback returns to the chart's certificate, which was kept.
	mustHelm(t, r.args("rollback")...)
	expect.Same(t, chartSecret, r.mountedSecret(t))
	back := r.certificate(t)
	if !cmp.Equal(renewed.Data, back.Data) {
		t.Error("a rollback changed the certificate: no client trusts its CA")
	}
	expect.Same(t, corev1.SecretTypeTLS, back.Type)
}

// mountedSecret returns the name of the Secret with the serving certificate that pods mount.
func (r *release) mountedSecret(t *testing.T) string {
	t.Helper()
	volumes := r.deployment(t).Spec.Template.Spec.Volumes
	i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
	return volumes[i].Secret.SecretName
}

// checkAutoscaling checks what docs/operate.md says: with autoscaling, Helm leaves the number of replicas to others. It takes
// the number back only with --force-conflicts.
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
