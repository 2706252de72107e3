package admin

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/expect"
)

// guardedAdmin has all pages, and those of metrics and the status say nothing.
func guardedAdmin(hosts ...string) http.Handler {
	said := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writePlain(w, http.StatusOK, "said") })
	return New(func() (bool, []statusz.Check) { return true, nil }, said, Pages{
		Status: said, Flags: func() []statusz.Flag { return nil }, Profiling: true, Hosts: hosts,
	})
}

// guardedPaths are those that tell something.
var guardedPaths = []string{"/statusz", "/statusz?format=json", "/flagz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline"}

// TestAdminIsNotRebound: whoever owns a name in the DNS cannot read the admin port by letting it
// lead here, and all who may be meant to can.
func TestAdminIsNotRebound(t *testing.T) {
	admin := guardedAdmin("Listproxy.example.com", "10-0-0-1.pods.corp.test")
	for host, want := range map[string]int{
		"127.0.0.1:8081": 200, "10.1.2.3": 200, "[::1]:8081": 200, "[fd00::1]": 200, "[fe80::1%25eth0]:8081": 200, // a probe, Prometheus
		"localhost": 200, "LOCALHOST:8081": 200, "a.localhost:1": 200, // kubectl port-forward
		"listproxy-admin:8081": 200, "node-7": 200, // in the same namespace; a machine
		"listproxy-admin.listproxy.svc:8081": 200, "listproxy-admin.listproxy.svc.cluster.local.:8081": 200,
		"listproxy.example.com:8081": 200, "LISTPROXY.EXAMPLE.COM.": 200, "10-0-0-1.pods.corp.test": 200, // as named
		"": 200, // HTTP/1.0

		"evil.example.com": 403, "evil.example.com:8081": 403, "x.listproxy.example.com": 403,
		"localhost.evil.com": 403, "127.0.0.1.evil.com": 403, "a.svc.evil.com": 403, "a.svc.cluster.local.evil.com": 403,
		"xsvc.com": 403, "listproxy.listproxy": 403, "10.1.2.3.4": 403, "x.local": 403,
	} {
		for _, path := range guardedPaths {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = host
			admin.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s by the name %q: %d, want %d", path, host, w.Code, want)
			}
			if want == 403 && !strings.Contains(w.Body.String(), "--admin-hosts") {
				t.Errorf("what to do is not said: %s", w.Body)
			}
		}
		// Probes name what they like.
		for _, path := range []string{"/livez", "/readyz"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = host
			if admin.ServeHTTP(w, r); w.Code != 200 {
				t.Errorf("%s by the name %q: %d", path, host, w.Code)
			}
		}
	}
}

// TestAdminIsNotReadAcrossSites: pages from elsewhere cannot ask in the name of who looks at them.
func TestAdminIsNotReadAcrossSites(t *testing.T) {
	admin := guardedAdmin()
	for _, tt := range []struct {
		header http.Header
		want   int
	}{
		{http.Header{}, 200},
		{http.Header{"Sec-Fetch-Site": {"none"}}, 200},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://localhost:8081"}}, 200},
		{http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"none", "cross-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"something new"}}, 403},
		{http.Header{"Origin": {"https://evil.example.com"}}, 403},
		{http.Header{"Origin": {"http://localhost:8080"}}, 403},
		{http.Header{"Origin": {"null"}}, 403},
	} {
		for _, path := range guardedPaths {
			w := httptest.NewRecorder()
			r := adminRequest(http.MethodGet, path)
			r.Header = tt.header
			if admin.ServeHTTP(w, r); w.Code != tt.want {
				t.Errorf("%s with %v: %d, want %d", path, tt.header, w.Code, tt.want)
			}
		}
	}
}

// TestAdminHeaders: no answer can be framed, embedded, kept or taken for another type.
func TestAdminHeaders(t *testing.T) {
	admin := guardedAdmin()
	for _, path := range append([]string{"/livez", "/readyz", "/none"}, guardedPaths...) {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, adminRequest(http.MethodGet, path))
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") || !strings.Contains(got, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy is %q", path, got)
		}
	}
}

// TestAdminPagesAreBounded: more readers than there are places get 429 at once, probes are
// answered, and places come back.
func TestAdminPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-end
			writePlain(w, http.StatusOK, "said")
		})
		admin := New(func() (bool, []statusz.Check) { return true, nil }, slow, Pages{Status: slow})
		ask := func(path string) int {
			w := httptest.NewRecorder()
			admin.ServeHTTP(w, adminRequest(http.MethodGet, path))
			return w.Code
		}
		for _, path := range []string{"/statusz", "/metrics"} {
			for range pagePlaces {
				go ask(path)
			}
			synctest.Wait()
			for range 3 {
				if got := ask(path); got != http.StatusTooManyRequests {
					t.Errorf("one too many for %s gets %d", path, got)
				}
			}
		}
		if live, ready := ask("/livez"), ask("/readyz"); live != 200 || ready != 200 {
			t.Errorf("probes get %d and %d", live, ready)
		}
		close(end)
		synctest.Wait()
		if got := ask("/statusz"); got != 200 {
			t.Errorf("after that it is %d", got)
		}
	})
}

// deadlines notes the deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(deadline time.Time) error {
	d.set = append(d.set, deadline)
	return nil
}

// TestSlowReadersLoseTheirPlace: a page has a deadline, and the next request of the connection does
// not.
func TestSlowReadersLoseTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		guardedAdmin().ServeHTTP(w, adminRequest(http.MethodGet, "/statusz"))
		if len(w.set) != 2 || !w.set[0].Equal(time.Now().Add(pageWriteTimeout)) || !w.set[1].IsZero() {
			t.Errorf("deadlines %v", w.set)
		}
	})
}

// TestAdminOverTCP: as real clients see it.
func TestAdminOverTCP(t *testing.T) {
	server := httptest.NewServer(guardedAdmin())
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	expect.NoError(t, err)
	for host, want := range map[string]int{"": 200, "localhost:" + port: 200, "evil.example.com:" + port: 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/statusz", nil)
		expect.NoError(t, err)
		r.Host = host
		resp, err := server.Client().Do(r)
		expect.NoError(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %s", host, resp.Status)
		}
	}
}
