package forwarding

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/proxy/serve"
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

// TestReload replaces the certificate of a running listproxy, which is the same at the port, at the
// one for CONNECT, and inside a tunnel.
func TestReload(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	dir, next := t.TempDir(), t.TempDir()
	upstream, err := url.Parse(cp.URL())
	expect.NoError(t, err)
	for _, d := range []string{dir, next} {
		_, _, err := serve.SelfSigned(d, []string{upstream.Hostname()})
		expect.NoError(t, err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	p := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true, Args: []string{
			"--tls-cert-file", file("tls.crt"), "--tls-private-key-file", file("tls.key"),
		},
	})
	// trusted says whether a client that trusts only what is in d is served at the port, at the one for
	// CONNECT, and inside a tunnel.
	trusted := func(d string) (doors [3]bool) {
		pem, err := os.ReadFile(filepath.Join(d, "tls.crt"))
		expect.NoError(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		for i, address := range []string{strings.TrimPrefix(p.URL(), "https://"), p.ConnectURL().Host} {
			conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
			if err == nil {
				doors[i] = true
				_ = conn.Close()
			}
		}
		outer, err := tls.Dial("tcp", p.ConnectURL().Host, &tls.Config{InsecureSkipVerify: true})
		expect.NoError(t, err)
		defer func() { _ = outer.Close() }()
		_, _ = fmt.Fprintf(outer, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", upstream.Host)
		in := bufio.NewReader(outer)
		for line := ""; line != "\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		doors[2] = tls.Client(outer, &tls.Config{RootCAs: roots, ServerName: upstream.Hostname(), MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context()) == nil
		return doors
	}
	all := [3]bool{true, true, true}
	if trusted(dir) != all || trusted(next) != [3]bool{} {
		t.Fatalf("the certificate at first: %v, %v", trusted(dir), trusted(next))
	}
	kept := t.TempDir()
	copyFiles(t, kept, dir, "tls.crt")
	copyFiles(t, dir, next, "tls.crt") // without its key
	poll.Until(t, patience, "listproxy says what it cannot use", func() bool {
		return strings.Count(p.Log(), "a new certificate cannot be used") == 1
	})
	for _, name := range []string{"tls.crt", "tls.key"} {
		if !strings.Contains(p.Log(), file(name)) {
			t.Errorf("the log does not name %s", file(name))
		}
	}
	if got := trusted(kept); got != all {
		t.Errorf("with half of a new pair: %v", got)
	}
	copyFiles(t, dir, next, "tls.key")
	poll.Until(t, patience, "the new certificate is in use", func() bool { return trusted(next) == all && trusted(kept) == [3]bool{} })
	if strings.Contains(p.Log(), "PRIVATE KEY") {
		t.Error("a key is in the log")
	}
}

// copyFiles copies files from one folder to another, whole or not at all.
func copyFiles(t *testing.T, to, from string, names ...string) {
	t.Helper()
	for _, name := range names {
		in, err := os.Open(filepath.Join(from, name))
		expect.NoError(t, err)
		data, err := io.ReadAll(in)
		_ = in.Close()
		fresh := filepath.Join(to, name+".new")
		if err == nil {
			err = os.WriteFile(fresh, data, 0o600)
		}
		if err == nil {
			err = os.Rename(fresh, filepath.Join(to, name))
		}
		expect.NoError(t, err)
	}
}
