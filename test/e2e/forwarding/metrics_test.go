package forwarding

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// metricsService is the name of the APIService of metrics.k8s.io, and apiService what makes the API
// server ask the service "metrics" of a namespace for it.
const (
	metricsService = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	apiService     = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1beta1.metrics.k8s.io"},
		"spec":{"group":"metrics.k8s.io","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100,
		"insecureSkipTLSVerify":true,"service":{"namespace":%q,"name":"metrics","port":%d}}}`
)

// serveMetrics is what kubectl top needs of a metrics server.
func serveMetrics(w http.ResponseWriter, r *http.Request) {
	const usage = `"timestamp":"2025-01-02T03:04:05Z","window":"10s"`
	answers := map[string]string{
		"/apis/metrics.k8s.io/v1beta1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[` +
			`{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]},` +
			`{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`,
		"/apis/metrics.k8s.io/v1beta1/nodes": `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[` +
			`{"metadata":{"name":"` + nodeName + `"},` + usage + `,"usage":{"cpu":"150m","memory":"200Mi"}}]}`,
	}
	body, ok := answers[r.URL.Path]
	if namespace, found := strings.CutPrefix(r.URL.Path, "/apis/metrics.k8s.io/v1beta1/namespaces/"); found {
		namespace, ok = strings.CutSuffix(namespace, "/pods")
		body = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[{"metadata":{"name":"web-0","namespace":"` + namespace + `"},` +
			usage + `,"containers":[{"name":"main","usage":{"cpu":"7m","memory":"13Mi"}}]}]}`
	}
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = fmt.Fprintln(w, body)
}

// TestKubectlTop: with a metrics server, which is an aggregated API. (Without one, TestKubectl has
// the same error straight and through listproxy.)
func TestKubectlTop(t *testing.T) {
	ns := newNamespace(t)
	newPod(t, ns, "web-0")
	listener, err := net.Listen("tcp", "localhost:0")
	expect.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(serveMetrics))
	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err = admin.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	made := direct.do(t, call{
		method: http.MethodPost, path: metricsService[:strings.LastIndexByte(metricsService, '/')], header: http.Header{"Content-Type": {"application/json"}},
		body: fmt.Sprintf(apiService, ns, listener.Addr().(*net.TCPAddr).Port),
	})
	if made.Status != http.StatusCreated {
		t.Fatalf("the APIService: %d: %s", made.Status, made.Body)
	}
	// Other tests expect no such group.
	known := func() bool { return strings.Contains(direct.do(t, call{path: "/apis"}).Body, `"metrics.k8s.io"`) }
	defer func() {
		direct.do(t, call{method: http.MethodDelete, path: metricsService})
		poll.Until(t, patience, "the group is gone", func() bool { return !known() })
	}()
	poll.Until(t, patience, "the metrics server answers through the API server", func() bool {
		var list metav1.PartialObjectMetadataList
		r := direct.do(t, call{path: "/apis/metrics.k8s.io/v1beta1/nodes"})
		return r.Status == http.StatusOK && json.Unmarshal([]byte(r.Body), &list) == nil && len(list.Items) == 1 && known()
	})

	// kubectl remembers for hours which groups there are: each of these has a home of its own.
	straight := doorOf(t, direct.configs)
	eachDoor(t, func(t *testing.T, via *door) {
		via = doorOf(t, via.configs)
		for _, line := range []string{"top nodes", "top pods -n " + ns, "top pods --containers -n " + ns, "top pods -n " + ns + " --no-headers --sort-by=cpu"} {
			want, got := straight.run(t, nil, "", strings.Fields(line)...), via.run(t, nil, "", strings.Fields(line)...)
			if want.Code != 0 || !strings.Contains(want.Out, "Mi") {
				t.Errorf("kubectl %s, straight: code %d: %s%s", line, want.Code, want.Out, want.Err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kubectl %s (-direct +via):\n%s", line, diff)
			}
		}
	})
}
