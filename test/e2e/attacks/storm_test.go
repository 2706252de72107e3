package attacks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// TestUnauthenticatedHTTP2 is about kube-apiserver as it is by default, with
// UnauthenticatedHTTP2DOSMitigation, which the table's is without: it ends an HTTP/2 connection
// after a request of nobody's.
func TestUnauthenticatedHTTP2(t *testing.T) {
	harness.Long(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	expect.NoError(t, err)
	t.Cleanup(plane.Stop)
	if err := plane.GrantAll(
		ctx,
		controlplane.Grant{To: []string{controlplane.Alice}, Namespace: controlplane.TeamA, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("create", "", "configmaps"),
		}},
		controlplane.Grant{To: []string{controlplane.FeedUserName}, Rules: []rbacv1.PolicyRule{
			controlplane.Rule("impersonate", "", "users,groups"),
			controlplane.Rule("impersonate", "authentication.k8s.io", "userextras/authentication.kubernetes.io/credential-id"),
		}},
	); err != nil {
		t.Fatal(err)
	}
	running := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed),
		Args:     []string{"--eager", "pods", "--client-ca-file", plane.CAPath()},
		Connect:  true,
	})
	host := strings.TrimPrefix(plane.URL(), "https://")
	for _, d := range []door{
		newDoor("direct", plane.URL(), plane.CA()),
		newDoor("server", running.URL(), running.CA()),
		newTunnel("tunnel", running.ConnectURL(), host, running.CA()),
	} {
		t.Run(d.name, func(t *testing.T) { testClosed(t, d, host, plane.Token(controlplane.Alice)) })
	}
	t.Run("storm", func(t *testing.T) { testStorm(t, plane, running) })
}

// testClosed asks over and over on one connection, which ends if it is nobody who asks.
func testClosed(t *testing.T, d door, host, token string) {
	const enough = 20
	for _, c := range []struct {
		name, token, target string
		closed              bool
	}{
		{"nobody's list", "", podsOfA, true},
		{"nobody's forward", "", "/version", true},
		{"a bad token's list", "of-a-stranger", podsOfA, true},
		{"a bad token's forward", "of-a-stranger", "/version", true},
		{"alice's list", token, podsOfA, false},
		{"alice's forward", token, "/version", false},
		{"what alice may not", token, podsOfB, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := d.dial(t.Context(), http2, nil)
			expect.NoError(t, err)
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, h2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			w := &wire{framer: h2.NewFramer(conn, conn), fill: strings.NewReplacer(), opened: map[uint32]bool{}}
			w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			w.coder = hpack.NewEncoder(&w.block)
			_ = w.framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: window})
			_ = w.framer.WriteWindowUpdate(0, window)
			answered := 0
			for stream := attackStream; answered < enough; stream += 2 {
				fields := []field{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", c.target}}
				if c.token != "" {
					fields = append(fields, field{"authorization", "Bearer " + c.token})
				}
				w.opened = map[uint32]bool{} // what was before is answered
				w.headers(stream, true, fields...)
				out := w.read()
				if out.End != "" {
					if out.End == "hangs" {
						t.Fatal("the connection hangs")
					}
					break
				}
				answered++
			}
			if closed := answered < enough; closed != c.closed || answered == 0 {
				t.Errorf("closed: %v, after %d answers", closed, answered)
			}
		})
	}
}

// testStorm creates objects while many ask whom the API server does not know: not one create is
// lost.
func testStorm(t *testing.T, plane *controlplane.ControlPlane, running *harness.Proxy) {
	const each = 100 // by a token, by a certificate, and of two kinds of strangers
	cert, key, err := plane.IssueCert(controlplane.Alice)
	expect.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	expect.NoError(t, err)
	client := func(certificates ...tls.Certificate) *ask.Client {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(running.CA())
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12}}
		t.Cleanup(transport.CloseIdleConnections)
		return &ask.Client{Base: running.URL(), HTTP: &http.Client{Transport: transport}}
	}
	as := func(c *ask.Client, token string) *ask.Client {
		if token == "" {
			return c
		}
		return c.With("Authorization", "Bearer "+token)
	}
	byToken, byCertificate, strangers := client(), client(pair), client()
	ballast := strings.Repeat(rand.Text(), 400)
	var all sync.WaitGroup
	var mu sync.Mutex
	turnedAway := 0
	for i := range each {
		for j, c := range []*ask.Client{byToken, byCertificate} {
			all.Go(func() {
				token := ""
				if c == byToken {
					token = plane.Token(controlplane.Alice)
				}
				object := kinds.Kind{APIVersion: "v1", Name: "ConfigMap"}.Object(fmt.Sprintf("storm-%d-%d", i, j))
				object["data"] = kinds.Fields{"x": ballast}
				a, err := as(c, token).Send(t.Context(), http.MethodPost, "/api/v1/namespaces/team-a/configmaps", object)
				if err != nil || a.Code != http.StatusCreated {
					t.Errorf("create %d, %d: status %d, %v", i, j, a.Code, err)
				}
			})
		}
		for j, token := range []string{"", fmt.Sprintf("of-stranger-%d", i/2)} {
			all.Go(func() {
				// Their own connection is closed under them, which is as it should be.
				target := []string{podsOfA, podOfA}[(i+j)%2]
				if a, err := as(strangers, token).Get(t.Context(), target); err == nil && a.Code/100 == 4 {
					mu.Lock()
					defer mu.Unlock()
					turnedAway++
				}
			})
		}
	}
	all.Wait()
	if turnedAway < each {
		t.Errorf("the storm was of %d requests only", turnedAway)
	}
}
