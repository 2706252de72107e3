package forwarding

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/events"
)

const (
	// patience ends a wait for something that must come; no test passes because of it.
	patience = 3 * time.Minute
	// longPatience is that for what lives while several other things are waited for.
	longPatience = 5 * time.Minute

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
	cp      *controlplane.ControlPlane
	kubelet *standIn
	// direct is the API server itself, via is listproxy in front of it, as the server of a
	// kubeconfig, and tunnel the same listproxy as its proxy-url.
	direct, via, tunnel *door
	running             *harness.Proxy       // that listproxy
	admin               kubernetes.Interface // straight to the API server
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: setUp})
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
		Connect:  true,
		Args:     []string{"--review-ttl", longTTL, "--history-window", longWindow, "--eager", "pods,configmaps"},
	})
	if err != nil {
		return err
	}
	if direct, err = newDoor(dir, "direct", cp.RESTConfig); err != nil {
		return err
	}
	if via, err = newDoor(dir, "via", throughProxy(running)); err != nil {
		return err
	}
	if tunnel, err = newDoor(dir, "tunnel", throughTunnel(running)); err != nil {
		return err
	}
	if admin, err = kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin)); err != nil {
		return err
	}
	kubelet = startStandIn(serving)
	s.Cleanup(func() error { kubelet.close(); return nil })
	return registerNode(s.Context(), kubelet.port())
}

// registerNode does what a kubelet does when it joins.
func registerNode(ctx context.Context, port int32) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
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

// newPod makes a pod that runs on the stand-in's node.
func newPod(t *testing.T, namespace, name string) {
	t.Helper()
	newPodOn(t, namespace, name, nodeName)
}

// newPodOn makes a pod that runs on a node, or nowhere. Its labels say which it is.
func newPodOn(t *testing.T, namespace, name, node string) {
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
	if _, err := admin.CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// newConfigMap makes a config map, straight, and returns its revision.
func newConfigMap(t *testing.T, namespace, name string, data map[string]string) string {
	t.Helper()
	made, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made.ResourceVersion
}

// startProxy starts a listproxy of the test's own.
func startProxy(t *testing.T, o harness.ProxyOptions) *door {
	t.Helper()
	return doorOf(t, throughProxy(startProcess(t, o)))
}

// startProcess starts a listproxy that must end well.
func startProcess(t *testing.T, o harness.ProxyOptions) *harness.Proxy {
	t.Helper()
	return harness.RunProxy(t, o)
}

// doorOf makes a door of the test's own.
func doorOf(t *testing.T, configs func(user string) *rest.Config) *door {
	t.Helper()
	d, err := newDoor(t.TempDir(), "own", configs)
	expect.NoError(t, err)
	t.Cleanup(d.close)
	return d
}

// await receives from a channel that must have something to say.
func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("still not: %s", what)
		panic("not reached")
	}
}

// isSince reports whether the API server is of a version, as "1.37", or newer.
func isSince(wanted string) bool {
	return version.MustParseGeneric(cp.Version()).AtLeast(version.MustParseGeneric(wanted))
}

// eventsOf returns what reads the next event of a watch.
func eventsOf(res *http.Response) (next func() (string, error)) {
	in := events.NewReader(res.Body, res.Header.Get("Content-Type"))
	return func() (string, error) {
		event, err := in.Frame()
		return string(event), err
	}
}

// initialEvents reads a streaming list up to the bookmark at its end, whose revision is that of the
// moment.
func initialEvents(t *testing.T, next func() (string, error)) (all []string) {
	t.Helper()
	for {
		event, err := next()
		if err != nil {
			t.Fatalf("%q, %v", event, err)
		}
		if strings.Contains(event, metav1.InitialEventsAnnotationKey) {
			return append(all, reply{Body: event}.impersonal().Body)
		}
		all = append(all, event)
	}
}
