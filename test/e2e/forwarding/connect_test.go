package forwarding

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestConnectElsewhere: a CONNECT to anything but the API server opens nothing, and connects to
// nothing.
func TestConnectElsewhere(t *testing.T) {
	t.Parallel()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	go func() {
		for {
			conn, err := target.Accept()
			if err != nil {
				return
			}
			t.Errorf("somebody connected from %s", conn.RemoteAddr())
			_ = conn.Close()
		}
	}()
	elsewhere := target.Addr().String()
	upstream := strings.TrimPrefix(cp.URL(), "https://")
	host, port, _ := net.SplitHostPort(upstream)
	for line, code := range map[string]int{
		"CONNECT " + upstream:                        http.StatusOK,
		"CONNECT " + elsewhere:                       http.StatusForbidden,
		"CONNECT localhost:" + port:                  http.StatusForbidden, // --connect-hosts does not name it
		"CONNECT " + host + ":443":                   http.StatusForbidden,
		"CONNECT " + host:                            http.StatusForbidden,
		"CONNECT " + host + ":0" + port:              http.StatusForbidden,
		"CONNECT 0177.0.0.1:" + port:                 http.StatusForbidden,
		"CONNECT 2130706433:" + port:                 http.StatusForbidden,
		"CONNECT [::ffff:127.0.0.1]:" + port:         http.StatusForbidden,
		"CONNECT " + host + ".:" + port:              http.StatusForbidden,
		"CONNECT " + upstream + "@" + elsewhere:      http.StatusForbidden,
		"CONNECT " + elsewhere + "@" + upstream:      http.StatusForbidden,
		"CONNECT 169.254.169.254:80":                 http.StatusForbidden,
		"CONNECT metadata.google.internal:443":       http.StatusForbidden,
		"CONNECT /api":                               http.StatusForbidden,
		"GET http://" + elsewhere + "/":              http.StatusBadRequest,
		"GET https://" + upstream + "/api":           http.StatusBadRequest,
		"GET /api":                                   http.StatusBadRequest,
		"OPTIONS *":                                  http.StatusBadRequest,
		"DELETE /api/v1/namespaces/default/pods/all": http.StatusBadRequest,
	} {
		conn, err := tls.Dial("tcp", tunnel.proxy.Host, &tls.Config{RootCAs: tunnel.roots, MinVersion: tls.VersionTLS12})
		expect.NoError(t, err)
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", line, upstream, cp.Token(controlplane.Admin))
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: strings.Fields(line)[0]})
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if res.StatusCode != code {
			t.Errorf("%s: %s, want %d", line, res.Status, code)
		}
		if code != http.StatusOK {
			var status metav1.Status
			if err := json.NewDecoder(res.Body).Decode(&status); err != nil || int(status.Code) != code || status.Kind != "Status" {
				t.Errorf("%s: %v, %+v", line, err, status)
			}
		}
		_ = res.Body.Close()
		_ = conn.Close()
	}
}

// TestMisdirected: in a tunnel there is no other host than the API server.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{http1, http2} {
		for host, code := range map[string]int{
			"":                                       http.StatusOK,
			strings.TrimPrefix(cp.URL(), "https://"): http.StatusOK,
			"evil.example":                           http.StatusMisdirectedRequest,
			"localhost":                              http.StatusMisdirectedRequest,
			"127.0.0.1":                              http.StatusMisdirectedRequest, // that is port 443
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tunnel.url+"/version", http.NoBody)
			expect.NoError(t, err)
			req.Host = host
			res, err := tunnel.clients[proto].Do(req)
			expect.NoError(t, err)
			_ = res.Body.Close()
			if res.StatusCode != code || res.Proto != proto {
				t.Errorf("Host %q: %s over %s, want %d over %s", host, res.Status, res.Proto, code, proto)
			}
		}
	}
}

// TestCurl has curl ask for the same lists straight and through both doors; and for the newest state
// and a watch, where these come from memory.
func TestCurl(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	for i := range 3 {
		newConfigMap(t, ns, fmt.Sprintf("map-%d", i), map[string]string{"i": fmt.Sprint(i)})
	}
	newest := doorOf(t, throughTunnel(startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true, Args: []string{"--consistent-lists=always", "--watches"},
	})))
	for _, d := range []*door{via, tunnel, newest} {
		sameByCurl(t, d, "/api/v1/namespaces/"+ns+"/configmaps?limit=2")
		list := "/api/v1/namespaces/" + ns + "/configmaps?resourceVersion=0"
		poll.Until(t, patience, "curl gets a list from memory", func() bool {
			return strings.Contains(d.curl(t, list, "--include"), "listproxy; hit; detail=any")
		})
		poll.Until(t, patience, "curl as itself gets it indented from memory", func() bool {
			got := d.curl(t, list, "--include", "--user-agent", "curl/8.5.0")
			return strings.Contains(got, "listproxy; hit; detail=any") &&
				strings.Contains(got, "\n{\n  \"kind\": \"ConfigMapList\",\n  \"apiVersion\": \"v1\",\n")
		})
	}
	list := "/api/v1/namespaces/" + ns + "/configmaps"
	poll.Until(t, patience, "curl as itself gets the newest state from memory", func() bool {
		return strings.Contains(newest.curl(t, list, "--include", "--user-agent", "curl/8.5.0"), "listproxy; hit; detail=most-recent")
	})
	sameByCurl(t, newest, list, "--user-agent", "curl/8.5.0")
	watch := "/api/v1/namespaces/" + ns + "/configmaps?watch=true&resourceVersion=" + newConfigMap(t, ns, "map-x", nil)
	newConfigMap(t, ns, "map-y", nil)
	_, want := direct.curlWatch(t, watch)
	if !strings.Contains(want, `"name":"map-y"`) {
		t.Fatalf("curl, straight: %s", want)
	}
	poll.Until(t, patience, "curl as itself gets a watch from memory", func() bool {
		from, got := newest.curlWatch(t, watch)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("curl, the first event of a watch, with Cache-Status %q (-direct +via):\n%s", from, diff)
		}
		return from == "listproxy; hit; detail=after"
	})
}

// sameByCurl requires that curl gets the same list straight and through a door. As same does, it
// asks straight before and after, since any write makes another list of it.
func sameByCurl(t *testing.T, d *door, path string, args ...string) {
	t.Helper()
	for range 50 {
		want := direct.curl(t, path, args...)
		if !strings.HasSuffix(want, "\n200 2") {
			t.Fatalf("curl, straight: %s", want)
		}
		got := d.curl(t, path, args...)
		if direct.curl(t, path, args...) != want {
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("curl, %s, by %v (-direct +via):\n%s", d.name, d.proxy, diff)
		}
		return
	}
	t.Fatalf("curl %s: the API server's own answers keep changing", path)
}

// curl gets a path as the admin, and returns the body, the status and the version of HTTP.
func (d *door) curl(t *testing.T, path string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := d.curlCommand(ctx, t, path, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl, %s: %v: %s", d.name, err, errs.String())
	}
	return string(out)
}

// curlWatch begins a watch as curl itself does, and returns Cache-Status and the first line.
func (d *door) curlWatch(t *testing.T, path string) (from, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := d.curlCommand(ctx, t, path, "--include", "--no-buffer", "--user-agent", "curl/8.5.0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	expect.NoError(t, err)
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	in := textproto.NewReader(bufio.NewReader(out))
	status, err1 := in.ReadLine()
	header, err2 := in.ReadMIMEHeader()
	line, err3 := in.ReadLine()
	if err := errors.Join(err1, err2, err3); err != nil || !strings.Contains(status, " 200") {
		t.Fatalf("curl, %s: %s %v", d.name, status, err)
	}
	return header.Get(cacheStatus), line
}

// curlCommand is curl with a path as the admin.
func (d *door) curlCommand(ctx context.Context, t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	ca := filepath.Join(d.dir, "curl-ca.crt")
	expect.NoError(t, os.WriteFile(ca, d.configs(controlplane.Admin).CAData, 0o600))
	args = append([]string{
		"--silent", "--show-error", "--cacert", ca, "--user-agent", "client", "--noproxy", "",
		"--write-out", "\n%{http_code} %{http_version}", "--config", "-", d.url + path,
	}, args...)
	if d.proxy != nil {
		args = append(args, "--proxy", d.proxy.String(), "--proxytunnel", "--suppress-connect-headers", "--proxy-cacert", ca)
	}
	cmd := exec.CommandContext(ctx, "curl", args...) // #nosec G204 -- of the test's own words
	// A token is nothing for a command line.
	cmd.Stdin = strings.NewReader(fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", cp.Token(controlplane.Admin)))
	return cmd
}

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
