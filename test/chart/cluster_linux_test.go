package chart

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// cluster is a control plane with Helm's releases in it, whose kubelet is the test.
type cluster struct {
	cp     *controlplane.ControlPlane
	admin  kubernetes.Interface
	tokens map[types.UID]string // of pods, by their accounts
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	harness.Long(t)
	cp := harness.RunControlPlane(t, controlplane.Options{ServiceAccounts: true})
	admin, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	c := &cluster{cp, admin, map[types.UID]string{}}
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
	return matches(`(?m)^(\S+/\S+)$`, c.kubectl(t, "", "get", strings.Join(kinds, ","), "--all-namespaces", "--selector=app.kubernetes.io/managed-by=Helm", "--output=name"))
}

// release is an installation of the chart. All of its pods are on this machine, so they have ports that
// nobody else has, at an address that others cannot reach. The Service has the pod's ports: what is asked for
// at its name goes straight to the one pod.
type release struct {
	c                        *cluster
	name, namespace, address string
	https, connect, admin    int
}

// newRelease is one in a new namespace, which takes only pods that are restricted.
func (c *cluster) newRelease(t *testing.T, name, namespace string) *release {
	t.Helper()
	c.namespace(t, namespace, "restricted")
	return &release{c, name, namespace, "127.0.0.1", controlplane.FreePort(t), controlplane.FreePort(t), controlplane.FreePort(t)}
}

// args are those of Helm for the release, as the admin.
func (r *release) args(command string, more ...string) []string {
	return append([]string{command, r.name, "--kubeconfig", r.c.cp.KubeconfigPath(controlplane.Admin), "--namespace", r.namespace}, more...)
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
	return helm(t, append(r.args("upgrade", chart, "--install", "-f", r.ports(t), "-f", values(t, text)), flags...)...)
}

// ports is a file of values with the release's address and ports.
func (r *release) ports(t *testing.T) string {
	t.Helper()
	return values(t, fmt.Sprintf("{bindAddress: %s, ports: {https: %d, connect: %d, admin: %d}, service: {port: %d, connectPort: %d}}",
		r.address, r.https, r.connect, r.admin, r.https, r.connect))
}

func (r *release) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := r.c.admin.AppsV1().Deployments(r.namespace).Get(t.Context(), r.name, metav1.GetOptions{})
	expect.NoError(t, err)
	return d
}

// run starts a pod of the Deployment and returns when its readiness probe says yes.
func (r *release) run(t *testing.T) *container {
	t.Helper()
	template := r.deployment(t).Spec.Template
	pod := r.c.create(t, r.namespace, template.Labels, template.Spec)
	running := r.c.start(t, pod, pod.Spec.Containers[0], buildImage(t))
	probe := pod.Spec.Containers[0].ReadinessProbe.HTTPGet
	if probe.Port.StrVal != "admin" {
		t.Errorf("the probe asks at %s", probe.Port.StrVal)
	}
	admin := ask.At(fmt.Sprintf("http://%s:%d", r.address, r.admin))
	poll.Until(t, patience, "ready", func() bool {
		select {
		case <-running.exited:
			t.Fatalf("it ended: %v", running.exit)
		default:
		}
		a, err := admin.Get(t.Context(), probe.Path)
		return err == nil && a.Code == http.StatusOK
	})
	return running
}

// certificate is the Secret with the serving certificate.
func (r *release) certificate(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := r.c.admin.CoreV1().Secrets(r.namespace).Get(t.Context(), r.name+"-tls", metav1.GetOptions{})
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

// client returns a client of the Service: it knows it by its name, and trusts the CA in the Secret.
func (r *release) client(t *testing.T, direct *rest.Config) *rest.Config {
	t.Helper()
	cfg := rest.CopyConfig(direct)
	cfg.Host = fmt.Sprintf("https://%s:%d", r.address, r.https)
	cfg.TLSClientConfig.ServerName = r.name + "." + r.namespace + ".svc"
	cfg.CAData = r.certificate(t).Data["ca.crt"]
	return cfg
}

func get(t *testing.T, cfg *rest.Config, path string) ask.Answer {
	t.Helper()
	a, err := ask.MustNew(t, cfg, patience).Get(t.Context(), path)
	expect.NoError(t, err)
	return a
}

// reviewed is get, again for as long as the review of what the caller may fails.
func reviewed(t *testing.T, cfg *rest.Config, path string) (a ask.Answer) {
	t.Helper()
	poll.Reviewed(t.Context(), patience, func() string {
		a = get(t, cfg, path)
		return a.Source()
	})
	return a
}
