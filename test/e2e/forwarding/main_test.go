package forwarding

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// patience ends a wait for something that must come; no test passes because of it.
	patience = 3 * time.Minute
	// atOnce is how many tests run at the same time: more than there are CPUs, for they wait.
	atOnce = 8

	// longTTL is for how long the shared proxy believes a review: longer than any test, so
	// that only what flushes decisions can make a revocation count.
	longTTL = "10m"

	// longWindow is how far back the shared proxy can be asked: longer than any test holds on to a
	// revision.
	longWindow = "15m"

	nodeName = "stand-in"
)

// What all tests share.
var (
	cp *controlplane.ControlPlane
	// direct is the API server itself, via is listproxy in front of it, as the server of a
	// kubeconfig, and tunnel the same listproxy as its proxy-url.
	direct, via, tunnel way
	running             *harness.Proxy       // that listproxy, whose account may impersonate nobody
	admin               kubernetes.Interface // straight to the API server
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atOnce, SetUp: setUp})
}

func setUp(s *harness.Suite) error {
	dir, err := s.Dir()
	if err != nil {
		return err
	}
	// One pair for both ends: it serves the stand-in, and the API server shows it there.
	certPath, keyPath, err := serve.SelfSigned(dir, nil)
	if err != nil {
		return err
	}
	serving, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return err
	}
	cp, err = s.ControlPlane(controlplane.Options{APIServerArgs: []string{
		"--kubelet-certificate-authority=" + certPath,
		"--kubelet-client-certificate=" + certPath,
		"--kubelet-client-key=" + keyPath,
		"--strict-transport-security-directives=max-age=3600",
	}})
	if err != nil {
		return err
	}
	running, err = s.Proxy(harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args: []string{
			"--connect-port", "0", "--review-ttl", longTTL, "--history-window", longWindow, "--eager", "pods,configmaps", "--client-ca-file", cp.CAPath(),
		},
	})
	if err != nil {
		return err
	}
	direct, via, tunnel = func(config *rest.Config) *rest.Config { return config }, running.RESTConfig, running.TunnelConfig
	if admin, err = kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin)); err != nil {
		return err
	}
	kubelet := startStandIn(serving)
	s.Cleanup(func() error { kubelet.CloseClientConnections(); kubelet.Close(); return nil })
	return registerNode(s.Context(), kubelet.Listener.Addr().(*net.TCPAddr).Port)
}

// registerNode does what a kubelet does when it joins.
func registerNode(ctx context.Context, port int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}}, // #nosec G115 -- a port
	}}
	created, err := admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status = node.Status
	_, err = admin.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// newNamespace makes a namespace for one run of one test.
func newNamespace(t *testing.T) string {
	t.Helper()
	made, err := admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "forwarding-"}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made.Name
}

// newPod makes a pod that runs on a node, or nowhere. Its labels say which it is.
func newPod(t *testing.T, namespace, name, node string) {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": namespace, "at": name}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: "example.com/main", Stdin: true}},
		},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	if node == "" {
		return
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	_, err = admin.CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	expect.NoError(t, err)
}

// newConfigMap makes a config map, straight, and returns its revision.
func newConfigMap(t *testing.T, namespace, name string, data map[string]string) string {
	t.Helper()
	made, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made.ResourceVersion
}

// grant gives rights for the time of the test, or until revoke is called.
func grant(t *testing.T, g controlplane.Grant) (revoke func()) {
	t.Helper()
	end, err := cp.Grant(t.Context(), g)
	expect.NoError(t, err)
	revoke = sync.OnceFunc(func() { expect.NoError(t, end(context.WithoutCancel(t.Context()))) })
	t.Cleanup(revoke)
	return revoke
}

// A way leads to the API server: straight, or through listproxy.
type way func(direct *rest.Config) *rest.Config

// as is a client of a user's.
func (w way) as(t *testing.T, user string) *ask.Client {
	t.Helper()
	return ask.MustNew(t, w(cp.RESTConfig(user)), patience)
}

// speaking is the way of clients that speak HTTP/2, or HTTP/1.1 only, and look at what arrives as it is.
func (w way) speaking(major int) way {
	return func(direct *rest.Config) *rest.Config {
		config := w(direct)
		if config.DisableCompression = true; major == 1 {
			config.NextProtos = []string{"http/1.1"}
		}
		return config
	}
}

// eachWay runs a test through both ways into listproxy; with -short, through one.
func eachWay(t *testing.T, test func(t *testing.T, via way)) {
	t.Helper()
	t.Run("server", func(t *testing.T) { test(t, via) })
	if !testing.Short() {
		t.Run("tunnel", func(t *testing.T) { test(t, tunnel) })
	}
}

// get reads a target.
func get(t *testing.T, from *ask.Client, target string) ask.Answer {
	t.Helper()
	a, err := from.Get(t.Context(), target)
	expect.NoError(t, err)
	return a
}

// getUntil reads a target until the answer is as it is to be, and returns that.
func getUntil(t *testing.T, what string, from *ask.Client, target string, done func(ask.Answer) bool) (a ask.Answer) {
	t.Helper()
	poll.Until(t, patience, what, func() bool {
		a = get(t, from, target)
		return done(a)
	})
	return a
}

// wantForbidden requires that a list is forwarded, for a reason, and refused.
func wantForbidden(t *testing.T, a ask.Answer, reason string) {
	t.Helper()
	if !strings.HasPrefix(a.Source(), "listproxy; fwd=") || !strings.HasSuffix(a.Source(), "; detail="+reason) || a.Code != http.StatusForbidden {
		t.Errorf("want a 403, forwarded for %s: %s", reason, a)
	}
}
