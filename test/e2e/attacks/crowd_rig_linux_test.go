package attacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// Where the callers of TestCrowding come from. Linux has all of 127.0.0.0/8 without being told.
const (
	otherAddress = "127.0.0.10"
	crowdAddress = "127.0.0.20"
)

// crowdPods are what is listed.
var crowdPods = workload.Pods{Nodes: 50}

// crowdRig is what all cases of TestCrowding share: a control plane of their own, as it is by
// default, and a listproxy that has pods in memory.
type crowdRig struct {
	plane *controlplane.ControlPlane
	proxy *harness.Proxy
	slow  atomic.Pointer[heldUp]

	worker string    // the other caller's token, who works
	bare   string    // of an account without rights
	greedy [2]string // of one account
}

// heldUp says whose reviews get no answer, and until when.
type heldUp struct {
	is    func(r *crowdRig, token string) bool
	until context.Context
}

// A side is the rig in one test.
type side struct {
	*testing.T
	*crowdRig
}

func newCrowdRig(t *testing.T) *crowdRig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), crowdPatience)
	defer cancel()
	r := &crowdRig{plane: harness.RunControlPlane(t, controlplane.Options{})}
	expect.NoError(t, workload.Fill(ctx, r.plane, crowdPods, 300, func(int) {}))
	for _, account := range []struct {
		name  string
		token *string
	}{{"worker", &r.worker}, {"bare", &r.bare}, {"greedy", &r.greedy[0]}, {"greedy", &r.greedy[1]}} {
		var err error
		*account.token, err = r.plane.CreateServiceAccountToken(ctx, controlplane.TeamA, account.name)
		expect.NoError(t, err)
	}
	expect.NoError(t, r.plane.GrantAll(ctx, controlplane.Grant{
		To: []string{"team-a/worker", "team-a/greedy"}, Rules: []rbacv1.PolicyRule{controlplane.Rule("get,list,watch", "", "pods")},
	}))

	upstream := hop.Run(t, r.plane.URL(), r.plane.CA())
	upstream.OnRequest(func(_ http.ResponseWriter, req *http.Request) bool {
		token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		slow := r.slow.Load()
		if !strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews") || slow == nil || !slow.is(r, token) {
			return false
		}
		select {
		case <-req.Context().Done():
		case <-slow.until.Done():
		}
		return true
	})
	r.proxy = harness.RunProxy(t, harness.ProxyOptions{
		Upstream: upstream.RESTConfig(r.plane.RESTConfig(controlplane.Feed)),
		// Without the log of requests, which is kept in memory here. The self-check asks on its own
		// account.
		Args: []string{
			"--log-level", "info", "--eager", "pods", "--self-check-interval", "0", "--watches", "--consistent-lists=true",
			"--max-long-running-requests", strconv.Itoa(crowdPlaces), "--max-inflight-bytes", strconv.Itoa(crowdBytes),
		},
	})
	s := &side{t, r}
	client := s.client(otherAddress)
	defer client.CloseIdleConnections()
	poll.Until(t, patience, "pods come from memory", func() bool {
		a := s.get(ctx, client, r.worker, "/api/v1/pods?limit=1&resourceVersion=0")
		return a.err == nil && a.hit()
	})
	return r
}

// upstreamClient asks kube-apiserver itself.
func (s *side) upstreamClient(user string) *http.Client {
	s.Helper()
	client, err := rest.HTTPClientFor(s.plane.RESTConfig(user))
	s.must(err)
	return client
}

// tls is a client's configuration.
func (s *side) tls(protocols ...string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.proxy.CA())
	return &tls.Config{
		RootCAs: roots, ServerName: "127.0.0.1", NextProtos: protocols, MinVersion: tls.VersionTLS12,
		CurvePreferences: cheapCurves,
	}
}

// dialer dials from an address.
func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// client has connections of its own, from an address, over HTTP/2.
func (s *side) client(address string) *http.Client {
	config := s.tls(http2, http1)
	return &http.Client{Transport: &http.Transport{
		DialContext: dialerFrom(address).DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true,
		DisableCompression: true,
	}}
}

// dial opens a TLS connection from an address.
func (s *side) dial(ctx context.Context, address, protocol string) (*tls.Conn, error) {
	conn, err := dialerFrom(address).DialContext(ctx, "tcp", strings.TrimPrefix(s.proxy.URL(), "https://"))
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
	code   int
	source string // Cache-Status
	err    error
}

func (a crowdAnswer) hit() bool { return strings.HasPrefix(a.source, "listproxy; hit") }

// ok reports whether it is a list or a watch.
func (a crowdAnswer) ok() bool { return a.err == nil && a.code == http.StatusOK }

// get reads an answer to its end.
func (s *side) get(ctx context.Context, client *http.Client, token, target string) (a crowdAnswer) {
	res, err := s.open(ctx, client, token, target)
	if err != nil {
		return crowdAnswer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	a.code, a.source = res.StatusCode, res.Header.Get("Cache-Status")
	_, a.err = io.Copy(io.Discard, res.Body)
	return a
}

// open asks, and reads the header.
func (s *side) open(ctx context.Context, client *http.Client, token, target string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.proxy.URL()+target, http.NoBody)
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
