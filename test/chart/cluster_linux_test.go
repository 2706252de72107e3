package chart

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

// cluster is a control plane with Helm's releases in it.
type cluster struct {
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
	kubelet
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, controlplane.Options{})
}

func newClusterWith(t *testing.T, o controlplane.Options) *cluster {
	t.Helper()
	harness.Long(t)
	cp := harness.RunControlPlane(t, o)
	admin, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	return &cluster{cp: cp, admin: admin, kubelet: kubelet{cp: cp, client: admin}}
}

// release is an installation of the chart.
type release struct {
	c               *cluster
	name, namespace string
	https, connect  int // ports
	base            string
}

// newRelease chooses free ports, since all pods are on this machine, and none that others can
// reach.
func (c *cluster) newRelease(t *testing.T, name, namespace string) *release {
	t.Helper()
	ports := freePorts(t, 3)
	r := &release{c: c, name: name, namespace: namespace, https: ports[0], connect: ports[1]}
	// The Service has the pod's ports: what is asked for at its name goes straight to the one pod.
	r.base = values(t, fmt.Sprintf("{bindAddress: 127.0.0.1, ports: {https: %d, connect: %d, admin: %d}, service: {port: %d, connectPort: %d}}",
		r.https, r.connect, ports[2], r.https, r.connect))
	return r
}

// freePorts returns so many ports of loopback that nobody listens on. A pod takes them minutes
// later, and again after a restart. So they are none that Linux gives to outgoing connections (from
// 32768), and none that package controlplane gives to its servers (from 20000 to 29999): what is
// free stays free.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	const first, count = 10000, 10000
	var ports []int
	start := rand.IntN(count) // #nosec G404 -- only spreads the tries
	for i := range count {
		port := first + (start+i)%count
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("no %d free ports on 127.0.0.1 between %d and %d", n, first, first+count-1)
	return nil
}

// helm runs Helm for the release, as the admin.
func (r *release) helm(t *testing.T, command string) {
	t.Helper()
	mustHelm(t, r.args(command)...)
}

func (r *release) args(command string, args ...string) []string {
	return append([]string{
		command, r.name, "--kubeconfig", r.c.cp.KubeconfigPath(controlplane.Admin), "--namespace", r.namespace,
	}, args...)
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
	args := r.args("upgrade", chart, "--install", "--create-namespace", "-f", r.base, "-f", values(t, text))
	return helm(t, append(args, flags...)...)
}

// manifest is what Helm has installed.
func (r *release) manifest(t *testing.T) string {
	t.Helper()
	return mustHelm(t, append([]string{"get"}, r.args("manifest")...)...)
}

func (r *release) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := r.c.admin.AppsV1().Deployments(r.namespace).Get(t.Context(), r.name, metav1.GetOptions{})
	expect.NoError(t, err)
	return d
}

// run starts a pod of the Deployment and returns when its probe says that it is ready.
func (r *release) run(t *testing.T) *container {
	t.Helper()
	pod := r.deployment(t).Spec.Template.Spec
	c := r.c.start(t, r.namespace, pod, "listproxy", buildImage(t))
	c.awaitReady(t, pod.Containers[0])
	return c
}

// certificate is the Secret with the serving certificate.
func (r *release) certificate(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := r.c.admin.CoreV1().Secrets(r.namespace).Get(t.Context(), r.name+"-tls", metav1.GetOptions{})
	expect.NoError(t, err)
	return s
}

// client returns a client of the Service: it knows it by its name, and trusts the CA in the Secret.
func (r *release) client(t *testing.T, direct *rest.Config) *rest.Config {
	t.Helper()
	cfg := rest.CopyConfig(direct)
	cfg.Host = fmt.Sprintf("https://127.0.0.1:%d", r.https)
	cfg.TLSClientConfig.ServerName = r.name + "." + r.namespace + ".svc"
	cfg.CAData = r.certificate(t).Data["ca.crt"]
	return cfg
}

// get asks for a path and returns the code, Cache-Status and the body.
func get(t *testing.T, cfg *rest.Config, path string) (code int, cacheStatus, body string) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	expect.NoError(t, err)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, http.NoBody)
	expect.NoError(t, err)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "a-client")
	resp, err := client.Do(req)
	expect.NoError(t, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	expect.NoError(t, err)
	return resp.StatusCode, resp.Header.Get("Cache-Status"), string(all)
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

// rights are all that RBAC allows listproxy's account in a namespace.
func (r *release) rights(t *testing.T, namespace string) []string {
	t.Helper()
	return r.rightsOf(t, r.name, namespace)
}

// rightsOf are all that RBAC allows an account of the release in a namespace, as "verb
// group/resource[/name]", sorted, as the authorizer knows them.
func (r *release) rightsOf(t *testing.T, account, namespace string) []string {
	t.Helper()
	token, err := r.c.cp.CreateServiceAccountToken(t.Context(), r.namespace, account)
	expect.NoError(t, err)
	cfg := r.c.cp.RESTConfig(controlplane.Anonymous)
	cfg.BearerToken = token
	client, err := kubernetes.NewForConfig(cfg)
	expect.NoError(t, err)
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	if review.Status.Incomplete {
		t.Fatalf("not all rights are known: %s", review.Status.EvaluationError)
	}
	var all []string
	for _, rule := range review.Status.ResourceRules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					right := verb + " " + group + "/" + resource
					if len(rule.ResourceNames) == 0 {
						all = append(all, right)
					}
					for _, name := range rule.ResourceNames {
						all = append(all, right+"/"+name)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// everything are all objects of the cluster, but for what API servers make by themselves.
func (c *cluster) everything(t *testing.T) []string {
	t.Helper()
	cfg := c.cp.RESTConfig(controlplane.Admin)
	found, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerPreferredResources()
	expect.NoError(t, err)
	client, err := metadata.NewForConfig(cfg)
	expect.NoError(t, err)
	var all []string
	for _, list := range found {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		expect.NoError(t, err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "leases" {
				continue
			}
			objects, err := client.Resource(gv.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("%s: %v", resource.Name, err)
			}
			for _, o := range objects.Items {
				all = append(all, strings.Join([]string{gv.Group, resource.Name, o.Namespace, o.Name}, "/"))
			}
		}
	}
	slices.Sort(all)
	return all
}
