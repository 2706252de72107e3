package forwarding

import (
	"context"
	"crypto/tls"
	"fmt"
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
	// parallelTests is more than there are CPUs, since tests wait.
	parallelTests = 8

	// longTTL is a --review-ttl longer than any test. So a review that allowed a list is forgotten only if listproxy's watch of
	// RBAC objects says that rights have changed.
	longTTL = "10m"

	// longWindow is a --history-window longer than the time for which any test asks for the same revision.
	longWindow = "15m"

	// kubeletNode is the node that leads kube-apiserver to the stand-in of a kubelet.
	kubeletNode = "stand-in"
)

// What all tests share.
var (
	cp *controlplane.ControlPlane
	// running is a listproxy whose account may impersonate nobody.
	running *harness.Proxy
	// direct leads to kube-apiserver itself.
	direct way
	// viaServer leads through running as the server of a kubeconfig.
	viaServer way
	// viaProxyURL leads through running as the proxy-url of a kubeconfig.
	viaProxyURL way
	// admin asks kube-apiserver directly.
	admin kubernetes.Interface
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: parallelTests, SetUp: setUp})
}

func setUp(s *harness.Suite) error {
	dir, err := s.Dir()
	if err != nil {
		return err
	}
	// One certificate for both ends of the connections from kube-apiserver to the stand-in of a kubelet.
	certPath, keyPath, err := serve.SelfSigned(dir, nil)
	if err != nil {
		return fmt.Errorf("the kubelet's certificate: %w", err)
	}
	kubeletPair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return fmt.Errorf("the kubelet's certificate: %w", err)
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
			"--connect-port", "0", "--review-ttl", longTTL, "--history-window", longWindow, "--eager", "pods,configmaps",
			"--client-ca-file", cp.CAPath(),
		},
	})
	if err != nil {
		return err
	}
	direct = func(config *rest.Config) *rest.Config { return config }
	viaServer = running.RESTConfig
	viaProxyURL = running.TunnelConfig
	if admin, err = kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin)); err != nil {
		return fmt.Errorf("the admin's client: %w", err)
	}
	kubelet := startKubelet(kubeletPair)
	s.Cleanup(func() error { kubelet.CloseClientConnections(); kubelet.Close(); return nil })
	if err := registerNode(s.Context(), kubelet.Listener.Addr().(*net.TCPAddr).Port); err != nil {
		return fmt.Errorf("the kubelet's node: %w", err)
	}
	return nil
}

// registerNode creates the node of a kubelet that listens on a port, as the kubelet does when it joins.
func registerNode(ctx context.Context, port int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubeletNode}, Status: corev1.NodeStatus{
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

// newNamespace creates a namespace and returns its name.
func newNamespace(t *testing.T) string {
	t.Helper()
	made, err := admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "forwarding-"}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made.Name
}

// newPod creates a pod that runs on a node, or is pending if node is "". It has labels for its namespace and its name.
func newPod(t *testing.T, namespace, name, node string) {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"namespace": namespace, "name": name}},
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

// newConfigMap creates a ConfigMap at kube-apiserver and returns its revision.
func newConfigMap(t *testing.T, namespace, name string, data map[string]string) string {
	t.Helper()
	made, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made.ResourceVersion
}

// grant grants rights until revoke is called, or the test ends.
func grant(t *testing.T, g controlplane.Grant) (revoke func()) {
	t.Helper()
	end, err := cp.Grant(t.Context(), g)
	expect.NoError(t, err)
	revoke = sync.OnceFunc(func() { expect.NoError(t, end(context.WithoutCancel(t.Context()))) })
	t.Cleanup(revoke)
	return revoke
}

// A way is how a client reaches kube-apiserver: directly, or through a listproxy. It turns the client's configuration for
// kube-apiserver into one that goes this way.
type way func(direct *rest.Config) *rest.Config

// clientOf returns a client that goes this way and logs in as a user.
func (w way) clientOf(t *testing.T, user string) *ask.Client {
	t.Helper()
	return ask.MustNew(t, w(cp.RESTConfig(user)), patience)
}

// get returns the answer to a GET of any status.
func get(t *testing.T, from *ask.Client, target string) ask.Answer {
	t.Helper()
	a, err := from.Get(t.Context(), target)
	expect.NoError(t, err)
	return a
}

// getUntil sends a GET again and again until done reports true, and returns that answer. what says what done looks for.
func getUntil(t *testing.T, what string, from *ask.Client, target string, done func(ask.Answer) bool) (a ask.Answer) {
	t.Helper()
	poll.Until(t, patience, what, func() bool {
		a = get(t, from, target)
		return done(a)
	})
	return a
}

// requireForbidden requires a 403 that kube-apiserver sent to a list that was forwarded for a reason.
func requireForbidden(t *testing.T, a ask.Answer, reason string) {
	t.Helper()
	isForwarded := strings.HasPrefix(a.Source(), "listproxy; fwd=") && strings.HasSuffix(a.Source(), "; detail="+reason)
	if !isForwarded || a.Code != http.StatusForbidden {
		t.Errorf("got %[2]s, want a 403 with detail=%[1]s", reason, a)
	}
}
