package attacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// Where the callers of TestCrowding come from. Linux has all of 127.0.0.0/8 without being told.
const (
	otherAddress      = "127.0.0.10"
	crowdAddress      = "127.0.0.20"
	accompliceAddress = "127.0.0.21"
)

// crowdPods are what is listed.
var crowdPods = workload.Pods{Nodes: 50}

// crowdRig is what all cases of TestCrowding share: a control plane of their own, as it is by
// default.
type crowdRig struct {
	plane  *controlplane.ControlPlane
	binary string // listproxy without the race detector, where memory and CPU are measured; else "", which is with it

	worker string    // the other caller's token, who works
	bare   string    // of an account without rights
	greedy [2]string // of one account
}

func newCrowdRig(t *testing.T) *crowdRig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := &crowdRig{}
	var err error
	if *crowdFull {
		if r.binary, err = harness.BuildPlainProxy(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if r.plane, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.plane.Stop)
	expect.NoError(t, workload.Fill(ctx, r.plane, crowdPods, crowdScale(3000, 300), func(int) {}))
	for _, account := range []struct {
		name  string
		token *string
	}{{"worker", &r.worker}, {"bare", &r.bare}, {"greedy", &r.greedy[0]}, {"greedy", &r.greedy[1]}} {
		if *account.token, err = r.plane.CreateServiceAccountToken(ctx, controlplane.TeamA, account.name); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.plane.GrantAll(
		ctx,
		controlplane.Grant{To: []string{"team-a/worker", "team-a/greedy"}, Rules: []rbacv1.PolicyRule{controlplane.Rule("get,list,watch", "", "pods")}},
		controlplane.Grant{To: []string{"team-a/greedy"}, Namespace: controlplane.TeamA, Rules: []rbacv1.PolicyRule{controlplane.Rule("create", "", "configmaps")}},
	); err != nil {
		t.Fatal(err)
	}
	return r
}

// A side is a server that is attacked: listproxy, or kube-apiserver itself.
type side struct {
	*testing.T
	rig   *crowdRig
	proxy *harness.Proxy // nil: kube-apiserver
	url   string
	ca    []byte
	pid   int
	// held are the reviews that were held up.
	held atomic.Int64
	// follows: the other caller follows a pod, and begins more watches.
	follows bool
}

// directly is kube-apiserver's own side.
func (r *crowdRig) directly(t *testing.T) *side {
	t.Helper()
	pid, err := r.plane.APIServerPID()
	expect.NoError(t, err)
	return &side{T: t, rig: r, url: r.plane.URL(), ca: r.plane.CA(), pid: pid}
}

// through is the side of a new listproxy, which has pods in memory.
func (r *crowdRig) through(t *testing.T, c crowding) *side {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := &side{T: t, rig: r}
	upstream := r.plane.RESTConfig(controlplane.Feed)
	if c.slow != nil && !*crowdFull {
		waits := hop.Run(t, r.plane.URL(), r.plane.CA())
		waits.OnRequest(func(_ http.ResponseWriter, req *http.Request) bool {
			token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
			if !strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews") || !c.slow(r, token) {
				return false
			}
			s.held.Add(1)
			<-req.Context().Done()
			return true
		})
		upstream = waits.RESTConfig(upstream)
	}
	proxy := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: upstream, Binary: r.binary,
		// Without the log of requests, which is kept in memory here. The self-check asks on its own
		// account.
		Args: append([]string{"--log-level", "info", "--eager", "pods", "--self-check-interval", "0"}, c.args...),
	})
	s.proxy, s.url, s.ca, s.pid = proxy, proxy.URL(), proxy.CA(), proxy.PID()
	client := s.client(otherAddress, nil)
	defer client.CloseIdleConnections()
	poll.Until(t, patience, "pods come from memory", func() bool {
		a := s.get(ctx, client, r.worker, "/api/v1/pods?limit=1&resourceVersion=0")
		return a.err == nil && a.hit()
	})
	return s
}

// name of the side in the table.
func (s *side) name() string {
	if s.proxy == nil {
		return "kube-apiserver"
	}
	return "listproxy"
}

// tls is a client's configuration.
func (s *side) tls(protocols ...string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca)
	return &tls.Config{
		RootCAs: roots, ServerName: "127.0.0.1", NextProtos: protocols, MinVersion: tls.VersionTLS12,
		CurvePreferences: cheapCurves,
	}
}

// dialer dials from an address.
func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// client has connections of its own, from an address, over HTTP/2. What shows a certificate has it
// in change.
func (s *side) client(address string, change func(*tls.Config)) *http.Client {
	config := s.tls(http2, http1)
	if change != nil {
		change(config)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: dialerFrom(address).DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true,
		DisableCompression: true,
	}}
}

// client1 is client over HTTP/1.1: it has a connection for each request at a time.
func (s *side) client1(address string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: dialerFrom(address).DialContext, TLSClientConfig: s.tls(http1), DisableCompression: true,
	}}
}

// dial opens a TLS connection from an address that speaks one protocol.
func (s *side) dial(ctx context.Context, address, protocol string) (*tls.Conn, error) {
	conn, err := dialerFrom(address).DialContext(ctx, "tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, s.tls(protocol))
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// crowdAnswer is what came of a request.
type crowdAnswer struct {
	took   time.Duration
	code   int
	source string // Cache-Status
	size   int64
	err    error
}

func (a crowdAnswer) hit() bool { return strings.HasPrefix(a.source, "listproxy; hit") }

// ok reports whether it is a list or a watch.
func (a crowdAnswer) ok() bool { return a.err == nil && a.code == http.StatusOK }

// get reads an answer to its end.
func (s *side) get(ctx context.Context, client *http.Client, token, target string) (a crowdAnswer) {
	begun := time.Now()
	defer func() { a.took = time.Since(begun) }()
	res, err := s.open(ctx, client, token, target)
	if err != nil {
		return crowdAnswer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	a.code, a.source = res.StatusCode, res.Header.Get("Cache-Status")
	a.size, a.err = io.Copy(io.Discard, res.Body)
	return a
}

// open asks, and reads the header.
func (s *side) open(ctx context.Context, client *http.Client, token, target string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+target, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return client.Do(req)
}

// must ends the test at an error.
func (s *side) must(err error) {
	s.Helper()
	expect.NoError(s, err)
}
