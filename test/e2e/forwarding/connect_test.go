package forwarding

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// protoNoter notes over which protocol answers come.
type protoNoter struct {
	next   http.RoundTripper
	mu     sync.Mutex
	protos map[string]int
}

func (n *protoNoter) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := n.next.RoundTrip(r)
	if err == nil {
		n.mu.Lock()
		n.protos[res.Proto+" "+fmt.Sprint(res.StatusCode)]++
		n.mu.Unlock()
	}
	return res, err
}

// TestKubeconfigs takes what listproxy kubeconfig prints for a context of the API server's own, and
// gives it to client-go.
func TestKubeconfigs(t *testing.T) {
	t.Parallel()
	binary, err := harness.BuildProxy(t.Context())
	expect.NoError(t, err)
	ns := newNamespace(t)
	one := newConfigMap(t, ns, "one", nil)
	// Else a list of any revision may be of before.
	poll.Until(t, patience, "listproxy has the config map", func() bool {
		return isHit(via.do(t, call{path: "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=" + one}))
	})
	for _, way := range [][]string{
		{"--via=server", "--server=" + running.URL()},
		{"--via=proxy-url", "--proxy-url=" + running.ConnectURL().String()},
	} {
		t.Run(way[0], func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, append([]string{ // #nosec G204 -- the program under test
				"kubeconfig", "--kubeconfig", direct.kubeconfig(controlplane.Admin),
				"--certificate-authority", filepath.Join(running.Dir(), "tls.crt"),
			}, way...)...)
			text, err := cmd.Output()
			expect.NoError(t, err)
			config, err := clientcmd.RESTConfigFromKubeConfig(text)
			expect.NoError(t, err)
			noter := &protoNoter{protos: map[string]int{}}
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { noter.next = next; return noter })
			useClient(t, config, ns)
			if diff := cmp.Diff(map[string]int{"HTTP/2.0 200": 2, "HTTP/2.0 201": 1}, noter.protos); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
}

// useClient lists, writes, and watches what it wrote.
func useClient(t *testing.T, config *rest.Config, ns string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	maps := client.CoreV1().ConfigMaps(ns)
	list, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("%d objects, %v", len(list.Items), err)
	}
	changes, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	expect.NoError(t, err)
	defer changes.Stop()
	made := list.Items[0].DeepCopy()
	made.ObjectMeta = metav1.ObjectMeta{GenerateName: "made-"}
	if made, err = maps.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		event := await(t, "the watch tells of the write", changes.ResultChan())
		if object, ok := event.Object.(metav1.Object); ok && object.GetName() == made.Name {
			return
		}
	}
}
