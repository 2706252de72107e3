// Package cluster_test tests the chart, and clients of docs/clients.md, in a real cluster: make test-cluster.
package cluster_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/cluster"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// team is the namespace of pods that are clients. Their service account is robot.
const team = "team-pods"

// baseValues are chart values of every installation.
const baseValues = "consistentLists=true,watches=true,log.level=access,clients.inject=true,clients.namespaces={" + team + "}"

// listFromMemory is what a program prints that logs the headers of a list from memory.
const listFromMemory = "Cache-Status: listproxy; hit"

// tester is the cluster with clients of its API server.
type tester struct {
	*cluster.Cluster
	admin   kubernetes.Interface
	direct  *rest.Config // of the service account robot, for kube-apiserver itself
	through *rest.Config // of the service account robot, for listproxy; nil before the installation
}

// TestCluster: a chart that is installed in a real cluster serves its clients while it is restarted, upgraded, killed, drained,
// scaled and bypassed, and is uninstalled without a trace. The parts run in this order, since each needs the state that the
// parts before it leave.
func TestCluster(t *testing.T) {
	if sharedCluster == nil {
		t.Skip("make test-cluster runs it")
	}
	admin, err := kubernetes.NewForConfig(sharedCluster.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	c := &tester{Cluster: sharedCluster, admin: admin}
	objectsBefore := c.objects(t)
	for _, args := range []string{
		"create namespace " + team, "create serviceaccount robot -n " + team,
		"create clusterrolebinding robot --clusterrole=edit --serviceaccount=" + team + ":robot",
	} {
		c.kubectl(t, args)
	}
	for _, part := range []struct {
		name string
		test func(t *testing.T, c *tester)
	}{
		{"install", checkInstall},
		{"lists", checkLists},
		{"client certificates", checkClientCertificates},
		{"CONNECT", checkConnect},
		{"pods as clients", checkClientPods},
		{"restart", func(t *testing.T, c *tester) {
			whileClientsWork(t, c.through, c.direct, func() {
				c.kubectl(t, "rollout restart deployment/listproxy -n listproxy")
				c.kubectl(t, "rollout status deployment/listproxy -n listproxy --timeout=5m")
			})
		}},
		{"upgrade", func(t *testing.T, c *tester) {
			whileClientsWork(t, c.through, c.direct, func() { c.install(t, "podAnnotations.upgraded=yes") })
		}},
		{"killed", checkKilled},
		{"certificate", checkCertificate},
		{"token", checkToken},
		{"policy", func(t *testing.T, c *tester) {
			const leases = "policy.extraResources[0]."
			whileClientsWork(t, c.through, c.direct, func() {
				c.install(t, leases+"group=coordination.k8s.io,"+leases+"resource=leases,"+leases+"cache=onDemand")
			})
		}},
		{"drain", checkDrain},
		{"autoscaling", func(t *testing.T, c *tester) {
			whileClientsWork(t, c.through, c.direct, func() {
				c.install(t, "autoscaling.enabled=true,autoscaling.minReplicas=3")
				poll.Until(t, patience, "three replicas are ready", func() bool {
					return c.kubectl(t, "get deployment listproxy -n listproxy -o jsonpath={.status.readyReplicas}") == "3"
				})
			})
		}},
		{"bypass", checkBypass},
		{"traces", checkTraces},
		{"uninstall", func(t *testing.T, c *tester) {
			_, err := c.Helm(t.Context(), "uninstall", "listproxy", "--wait")
			expect.NoError(t, err)
			for _, args := range []string{
				"delete namespace " + team, "delete namespace listproxy", "delete clusterrolebinding robot",
			} {
				c.kubectl(t, args)
			}
			expect.Same(t, objectsBefore, c.objects(t))
		}},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, c) }) && c.through == nil {
			return // the installation failed
		}
	}
}

// kubectl runs kubectl as the admin.
func (c *tester) kubectl(t *testing.T, args string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "", strings.Fields(args)...)
	expect.NoError(t, err)
	return out
}

// install installs or upgrades the chart with baseValues and more. It returns the notes that Helm prints.
func (c *tester) install(t *testing.T, values ...string) string {
	t.Helper()
	notes, err := c.Install(t.Context(), append([]string{baseValues}, values...)...)
	expect.NoError(t, err)
	return notes
}

// objects returns the names of all objects in the cluster, to see later whether any is left behind. It leaves out kinds whose
// objects come and go by themselves, such as events, and Jaeger's objects, which checkTraces installs again.
func (c *tester) objects(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(c.kubectl(t, "api-resources --verbs=list,create,delete --output=name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasPrefix(kind, "leases") || strings.HasPrefix(kind, "ipaddresses") ||
			strings.HasSuffix(kind, "metrics.k8s.io")
	})
	all := strings.Fields(c.kubectl(t, "get "+strings.Join(kinds, ",")+" --all-namespaces --output=name"))
	all = slices.DeleteFunc(all, func(name string) bool { return strings.Contains(name, "/jaeger") })
	slices.Sort(all)
	return all
}

// checkInstall checks that helm test gets answers from memory after an installation.
func checkInstall(t *testing.T, c *tester) {
	c.install(t)
	out, err := c.Helm(t.Context(), "test", "listproxy", "--logs")
	expect.NoError(t, err)
	expect.Says(t, out, "from memory", "Cache-Status: listproxy; hit; detail=any")
	c.createClients(t)
}

// createClients sets c.direct and c.through, with a new token of robot. Like the pods of docs/clients.md, c.through trusts the
// CA in the ConfigMap listproxy-client, and expects the server name kubernetes.default.svc.
func (c *tester) createClients(t *testing.T) {
	t.Helper()
	trusted, err := c.admin.CoreV1().ConfigMaps(team).Get(t.Context(), "listproxy-client", metav1.GetOptions{})
	expect.NoError(t, err)
	token, err := c.CreateServiceAccountToken(t.Context(), team, "robot")
	expect.NoError(t, err)
	c.direct = c.RESTConfig(controlplane.Anonymous)
	c.direct.BearerToken = token
	c.through = rest.CopyConfig(c.direct)
	c.through.Host, c.through.ServerName = "https://"+cluster.ClusterIP, "kubernetes.default.svc"
	c.through.CAData = []byte(trusted.Data["ca.crt"])
}

// checkLists checks that lists of every resource that the policy keeps come from memory, and lists of Secrets never do.
func checkLists(t *testing.T, c *tester) {
	kept, err := c.admin.CoreV1().ConfigMaps(cluster.Namespace).Get(t.Context(), "listproxy-policy", metav1.GetOptions{})
	expect.NoError(t, err)
	file, err := policy.ParseFile("policy.yaml", []byte(kept.Data["policy.yaml"]))
	expect.NoError(t, err)
	proxied, err := c.Through(t.Context(), c.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	admin := ask.MustNew(t, proxied, patience)
	for _, rule := range file.Resources {
		path := "/apis/" + *rule.Group + "/v1/" + rule.Resource + "?resourceVersion=0"
		switch *rule.Group {
		case "":
			path = strings.Replace(path, "/apis/", "/api", 1)
		case "autoscaling": // v2 is preferred, and so it is kept
			path = strings.Replace(path, "/v1/", "/v2/", 1)
		}
		_, err := admin.AwaitMemory(t.Context(), path)
		expect.NoError(t, err)
	}
	a, err := admin.Get(t.Context(), "/api/v1/secrets?resourceVersion=0")
	expect.NoError(t, err)
	expect.Says(t, a.Source(), "detail=not-cached")
}

// checkClientCertificates checks clients that log in to listproxy with a certificate. If impersonation.users names the user,
// the request has that user's own rights: here none to list pods. listproxy may not impersonate any other user.
func checkClientCertificates(t *testing.T, c *tester) {
	_, err := c.admin.CoreV1().ConfigMaps(cluster.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "client-ca"}, Data: map[string]string{"bundle": string(c.CA())},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	c.install(t, "impersonation.users={"+controlplane.CertUser+"}",
		"clientCertificates.enabled=true,clientCertificates.caConfigMap.name=client-ca,clientCertificates.caConfigMap.key=bundle")
	otherCert, otherKey, err := c.IssueCert("mallory", "system:masters")
	expect.NoError(t, err)
	named, other := c.CertConfig(controlplane.CertUser), c.CertConfig(controlplane.CertUser)
	other.CertData, other.KeyData = otherCert, otherKey
	for _, tt := range []struct {
		client      *rest.Config
		wantRefusal string
	}{
		{client: named, wantRefusal: `User \"` + controlplane.CertUser + `\" cannot list`},
		{client: other, wantRefusal: "cannot impersonate"},
	} {
		through, err := c.Through(t.Context(), tt.client)
		expect.NoError(t, err)
		// Replicas from before the upgrade may still answer.
		poll.Until(t, patience, tt.wantRefusal, func() bool {
			a, err := ask.MustNew(t, through, patience).Get(t.Context(), "/api/v1/namespaces/team-a/pods?resourceVersion=0")
			return err == nil && strings.Contains(string(a.Body), tt.wantRefusal)
		})
	}
	c.install(t)
}

// checkConnect checks that a client gets lists from memory if it has the port for CONNECT as its proxy-url, and
// kube-apiserver's own URL as its server. The certificates of the port and of listproxy are signed by one CA.
func checkConnect(t *testing.T, c *tester) {
	c.install(t, "connect.enabled=true,connect.hosts={kubernetes.default.svc}")
	through, err := c.Through(t.Context(), c.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	tunnel := c.RESTConfig(controlplane.Admin)
	tunnel.Host = "https://kubernetes.default.svc"
	tunnel.CAData, tunnel.Proxy = through.CAData, http.ProxyURL(&url.URL{Scheme: "https", Host: "listproxy.listproxy.svc:8444"})
	tunnel.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, cluster.ClusterIP+":8444")
	}
	_, err = ask.MustNew(t, tunnel, patience).AwaitMemory(t.Context(), "/api/v1/pods?resourceVersion=0")
	expect.NoError(t, err)
	c.install(t)
}

// get returns the body that a server in the cluster sends; "" on an error.
func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: cluster.Dialer.DialContext}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	expect.NoError(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}
