package upstream

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

func TestParseEndpoints(t *testing.T) {
	for _, tt := range []struct {
		urls  []string
		want  []string
		wrong string
	}{
		{nil, nil, ""},
		{[]string{"https://10.0.0.1:6443", "https://API.example/"}, []string{"10.0.0.1:6443", "api.example:443"}, ""},
		{[]string{"https://[fd00::1]:6443"}, []string{"[fd00::1]:6443"}, ""},
		{[]string{"http://10.0.0.1:6443"}, nil, "not https"},
		{[]string{"10.0.0.1:6443"}, nil, "https://host:port"},
		{[]string{"https://:6443"}, nil, "no host"},
		{[]string{"https://a/prefix"}, nil, "more than a host"},
		{[]string{"https://a?x=y"}, nil, "more than a host"},
		{[]string{"https://u:hunter2@a:1"}, nil, "user or password"},
		{[]string{"https://u:hunter2@a:%zz"}, nil, "not a URL"},
		{[]string{"https://a", "https://A:443"}, nil, "twice"},
	} {
		got, err := ParseEndpoints(tt.urls)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.urls, diff)
		}
		if (err != nil) != (tt.wrong != "") || err != nil && (!strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%v: %v, want it to say %q", tt.urls, err, tt.wrong)
		}
	}
}

// newEndpoints returns endpoints of a cluster whose name is api.test.
func newEndpoints(t *testing.T, addresses ...string) *Endpoints {
	t.Helper()
	e, err := NewEndpoints(&rest.Config{Host: "https://api.test"}, addresses, proxytest.DiscardLog())
	expect.NoError(t, err)
	return e
}

func TestEndpointsBesideANetworkProxy(t *testing.T) {
	through := &rest.Config{Host: "https://api.test", Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})}
	if _, err := NewEndpoints(through, []string{"a:1"}, proxytest.DiscardLog()); err == nil || !strings.Contains(err.Error(), "network proxy") {
		t.Errorf("got %v", err)
	}
}

// listening returns the address of somebody who accepts connections.
func listening(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// deaf returns the address of somebody who does not: of the near end of a connection, so that
// nobody else is given the port.
func deaf(t *testing.T) string {
	t.Helper()
	conn, err := net.Dial("tcp", listening(t))
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

func TestEndpointsDial(t *testing.T) {
	one, two, gone := listening(t), listening(t), deaf(t)
	for name, tt := range map[string]struct {
		states map[string]endpointState
		want   []string // where connections go
	}{
		"none checked":         {map[string]endpointState{}, []string{one, two}},
		"one up":               {map[string]endpointState{one: endpointUp, two: endpointNotReady}, []string{one}},
		"the others up":        {map[string]endpointState{one: endpointUnreachable, two: endpointUp, gone: endpointUp}, []string{two}},
		"none up":              {map[string]endpointState{one: endpointNotReady, two: endpointUnreachable, gone: endpointUnreachable}, []string{one, two}},
		"only one that cannot": {map[string]endpointState{one: endpointNotReady, gone: endpointUp}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoints(t, one, two, gone)
			for _, ep := range e.all {
				if s, ok := tt.states[ep.address]; ok {
					ep.state = s
				}
			}
			reached := map[string]bool{}
			for range 64 {
				conn, err := e.dialContext(t.Context(), "tcp", "api.test:443")
				if err != nil {
					if tt.want != nil {
						t.Fatal(err)
					}
					break // it waited for another one
				}
				reached[conn.RemoteAddr().String()] = true
				_ = conn.Close()
			}
			for _, address := range []string{one, two} {
				if reached[address] != slices.Contains(tt.want, address) {
					t.Errorf("%s reached: %v", address, reached[address])
				}
			}
			if tt.want == nil && len(e.all[2].suspected) == 0 {
				t.Error("an endpoint to which no connection could be made is not checked again")
			}
		})
	}
	if _, err := newEndpoints(t, one).dialContext(t.Context(), "tcp", "elsewhere.test:443"); err == nil {
		t.Error("a connection to somebody else was made")
	}
}

// TestEndpointsTake goes through what checks may say one after the other.
func TestEndpointsTake(t *testing.T) {
	old, fresh := &version.Info{GitVersion: "v1.35.4"}, &version.Info{GitVersion: "v1.36.3"}
	up := func(v *version.Info) checkResult { return checkResult{state: endpointUp, said: v} }
	away := checkResult{state: endpointUnreachable, err: errors.New("away")}
	unready := checkResult{state: endpointNotReady, said: old, err: errors.New("ends")}

	e := newEndpoints(t, "a:1", "b:1")
	a, b := e.all[0], e.all[1]
	connect := func(ep *endpoint) (isClosed func() bool) {
		near, far := net.Pipe()
		ep.conns.Track(ep.traffic.count(near))
		t.Cleanup(func() { _ = far.Close() })
		return func() bool { return near.SetDeadline(time.Time{}) != nil }
	}
	step := func(what string, ep *endpoint, r checkResult, wantAgain bool, wantState endpointState, wantSaid ...string) {
		t.Helper()
		var said []string
		again := e.take(ep, r, func(all []version.Info) {
			for _, v := range all {
				said = append(said, v.GitVersion)
			}
		})
		if again != wantAgain || ep.state != wantState {
			t.Errorf("%s: again %v, state %s", what, again, ep.state)
		}
		if diff := cmp.Diff(wantSaid, said); diff != "" {
			t.Errorf("%s: versions (-want +got):\n%s", what, diff)
		}
	}

	e.take(a, up(old), func([]version.Info) {
		if a.state == endpointUp {
			t.Error("connections go to an API server before its version was told")
		}
	})
	if e.Checked() {
		t.Error("one of two was checked, and that is all")
	}
	step("b cannot be reached at first", b, away, false, endpointUnreachable, "v1.35.4")
	if !e.Checked() {
		t.Error("both were checked")
	}
	alone := connect(a)
	step("a fails once", a, away, true, endpointUp)
	step("a is back", a, up(old), false, endpointUp, "v1.35.4")
	step("a fails once", a, away, true, endpointUp)
	step("a fails twice, and whoever connects may still reach it", a, away, false, endpointUnreachable, "v1.35.4")
	if alone() {
		t.Error("connections were closed though there is no better place")
	}
	step("b of another version", b, up(fresh), false, endpointUp, "v1.36.3")
	step("a is still away", a, away, false, endpointUnreachable, "v1.36.3")
	if !alone() {
		t.Error("connections to an unreachable API server stay")
	}
	step("a is back", a, up(old), false, endpointUp, "v1.35.4", "v1.36.3")
	draining := connect(a)
	step("a ends", a, unready, false, endpointNotReady, "v1.35.4", "v1.36.3")
	if draining() {
		t.Error("connections to an API server that ends in order were closed")
	}
	a.unready = time.Now().Add(-endpointLinger)
	step("a is not ready for long", a, unready, false, endpointNotReady, "v1.35.4", "v1.36.3")
	if !draining() {
		t.Error("connections to an API server that has not been ready for long stay")
	}
	step("a knows no rights yet", a, checkResult{state: endpointUp, refused: true}, false, endpointNotReady, "v1.36.3")
	step("a has its rights, and no version", a, checkResult{state: endpointUp}, false, endpointNotReady, "v1.36.3")
	step("a ends again, and nothing is with it", a, unready, false, endpointNotReady, "v1.36.3")
	step("a has ended", a, away, true, endpointNotReady)
	step("a has ended", a, away, false, endpointUnreachable, "v1.36.3")
	step("b fails once", b, away, true, endpointUp)
	step("b fails twice: either may be connected to", b, away, false, endpointUnreachable, "v1.35.4", "v1.36.3")
	step("a is still away", a, away, false, endpointUnreachable, "v1.35.4", "v1.36.3")
	step("b is back", b, up(fresh), false, endpointUp, "v1.36.3")
	stats := []EndpointStats{
		{Address: "a:1", State: "unreachable", Since: a.since, Problem: "away"},
		{Address: "b:1", State: "up", Since: b.since, Version: "v1.36.3"},
	}
	if diff := cmp.Diff(stats, e.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// TestEndpointLeftOut: an API server of another version that stays not ready makes no two versions
// any more, once there is no connection to it.
func TestEndpointLeftOut(t *testing.T) {
	var ca []byte
	start := func(version string) (address string, unready *atomic.Bool, server *httptest.Server) {
		unready = new(atomic.Bool)
		server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" && unready.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = fmt.Fprintf(w, `{"gitVersion":%q}`, version)
		}))
		t.Cleanup(server.Close)
		ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		return server.Listener.Addr().String(), unready, server
	}
	old, oldUnready, _ := start("v1.35.4")
	fresh, _, freshServer := start("v1.36.3")
	e, err := NewEndpoints(&rest.Config{Host: "https://example.com", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, []string{old, fresh}, proxytest.DiscardLog())
	expect.NoError(t, err)
	check := func(what string, ep *endpoint, want ...string) {
		t.Helper()
		var said []string
		again := true
		for again {
			result := ep.check(t.Context())
			for result.late { // the machine is busy elsewhere
				result = ep.check(t.Context())
			}
			again = e.take(ep, result, func(all []version.Info) {
				for _, v := range all {
					said = append(said, v.GitVersion)
				}
			})
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("%s: versions (-want +got):\n%s", what, diff)
		}
	}
	connect := func(want string) net.Conn {
		t.Helper()
		conn, err := e.dialContext(t.Context(), "tcp", "example.com:443")
		expect.NoError(t, err)
		if got := conn.RemoteAddr().String(); got != want {
			t.Errorf("connected to %s, want %s", got, want)
		}
		return conn
	}
	a, b := e.all[0], e.all[1]
	check("the old one is up", a, "v1.35.4")
	used := connect(old)
	check("both are up", b, "v1.35.4", "v1.36.3")
	oldUnready.Store(true)
	check("the old one is not ready, and used", a, "v1.35.4", "v1.36.3")
	_ = used.Close()
	check("the other is up", b, "v1.36.3")
	check("the old one is not ready, and not used", a, "v1.36.3")
	if _, err := e.connect(t.Context(), "tcp", a); err == nil {
		t.Error("connected to an API server whose version was not told")
	}
	_ = connect(fresh).Close()
	oldUnready.Store(false)
	check("the old one is ready", a, "v1.35.4", "v1.36.3")
	oldUnready.Store(true)
	check("and is not again", a, "v1.36.3")
	freshServer.Close()
	check("none is up", b, "v1.35.4", "v1.36.3")
	_ = connect(old).Close()
}

// TestEndpointChosenIsNotLeftOut: while a connection is being made to an API server its version
// counts.
func TestEndpointChosenIsNotLeftOut(t *testing.T) {
	old, fresh := &version.Info{GitVersion: "v1.35.4"}, &version.Info{GitVersion: "v1.36.3"}
	begun, goOn := make(chan struct{}), make(chan struct{})
	dial := func(context.Context, string, string) (net.Conn, error) {
		close(begun)
		<-goOn
		near, _ := net.Pipe()
		return near, nil
	}
	e, err := newDialedEndpoints(&rest.Config{Host: "https://api.test"}, []string{"a:1", "b:1"}, dial, proxytest.DiscardLog())
	expect.NoError(t, err)
	a, b := e.all[0], e.all[1]
	versions := func(ep *endpoint, state endpointState, said *version.Info) (count int) {
		e.take(ep, checkResult{state: state, said: said, err: errors.New("not ready")}, func(all []version.Info) { count = len(all) })
		return count
	}
	versions(a, endpointUp, old)
	conns := make(chan net.Conn)
	go func() {
		conn, err := e.dialContext(t.Context(), "tcp", "api.test:443")
		if err != nil {
			t.Error(err)
		}
		conns <- conn
	}()
	<-begun
	versions(b, endpointUp, fresh)
	if got := versions(a, endpointNotReady, old); got != 2 {
		t.Errorf("%d versions while a connection is being made", got)
	}
	close(goOn)
	conn := <-conns
	if got := versions(a, endpointNotReady, old); got != 2 {
		t.Errorf("%d versions while there is a connection", got)
	}
	_ = conn.Close()
	if got := versions(a, endpointNotReady, old); got != 1 {
		t.Errorf("%d versions when it was closed", got)
	}
}

func TestEndpointCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		readyz, version int
		body            string
		want            endpointState
		says            string
	}{
		"up":               {200, 200, `{"gitVersion":"v1.36.3"}`, endpointUp, "v1.36.3"},
		"ends":             {500, 200, `{"gitVersion":"v1.36.3"}`, endpointNotReady, "v1.36.3"},
		"may not ask":      {403, 403, `{}`, endpointUp, ""},
		"knows nobody":     {401, 401, `{}`, endpointNotReady, ""},
		"not a version":    {200, 200, `<html>`, endpointUnreachable, ""},
		"sends one away":   {302, 200, `{"gitVersion":"v1.36.3"}`, endpointNotReady, "v1.36.3"},
		"no version today": {200, 500, ``, endpointUp, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			ports := map[string]bool{}
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				ports[r.RemoteAddr] = true
				mu.Unlock()
				if r.Host != "example.com" || r.Header.Get("Authorization") != "Bearer own" {
					t.Errorf("a check came for %s, with %d credentials", r.Host, len(r.Header["Authorization"]))
				}
				if r.URL.Path == "/at/readyz" {
					w.Header().Set("Location", "https://elsewhere.test/")
					w.WriteHeader(tt.readyz)
					return
				}
				w.WriteHeader(tt.version)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer server.Close()
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			cfg := &rest.Config{Host: "https://example.com/at", BearerToken: "own", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			e, err := NewEndpoints(cfg, []string{server.Listener.Addr().String()}, proxytest.DiscardLog())
			expect.NoError(t, err)
			checkTwice := func() (connections int, late bool) {
				mu.Lock()
				clear(ports)
				mu.Unlock()
				for range 2 {
					got := e.all[0].check(context.Background())
					if got.late {
						return 0, true
					}
					if got.state != tt.want || got.version() != tt.says {
						t.Errorf("got %s, %q, %v", got.state, got.version(), got.err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				return len(ports), false
			}
			// Where the machine is busy elsewhere, an answer may be late, or a connection not be
			// kept within a check.
			for range proxytest.KeepingTries {
				connections, late := checkTwice()
				if !late && connections < 2 {
					t.Fatalf("two checks came by %d connections", connections)
				}
				if connections == 2 {
					return
				}
			}
			t.Error("no two checks came by a connection each")
		})
	}
}

// TestSlowestCheck: while two versions serve, both are heard of again within SlowestCheck, also
// where answers are late or do not come; and that is not much longer than it takes.
func TestSlowestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoints(t, "a:1", "b:1")
		for i, version := range []string{"v1.35.4", "v1.36.3"} {
			busy := &proxytest.BusyVersions{Versions: []string{version}, LateAt: "/readyz", Patience: endpointTimeout}
			e.all[i].prober.client = &http.Client{Transport: busy}
		}
		begun, told, longest := time.Now(), time.Time{}, time.Duration(0)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Hour)
		defer cancel()
		e.Run(ctx, func(said []version.Info) {
			if len(said) < 2 {
				return
			}
			now := time.Now()
			if now.Sub(begun) > 10*time.Minute { // both have been heard
				longest = max(longest, now.Sub(told))
			}
			told = now
		})
		if slack := SlowestCheck - longest; slack < 0 || slack > time.Second {
			t.Errorf("both were heard of after %v once, SlowestCheck is %v", longest, SlowestCheck)
		}
	})
}
