package upstream

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestImpersonatedOnly: the proxy's credentials are sent with nothing that does not state a user.
func TestImpersonatedOnly(t *testing.T) {
	sent := 0
	way := impersonatedOnly{proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		sent++
		return proxytest.JSONResponse(r, http.StatusOK, ""), nil
	})}
	try := func(h http.Header) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://upstream.example/", strings.NewReader("x"))
		r.Header = h
		res, err := way.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for name, h := range map[string]http.Header{
		"nothing":         {},
		"no user":         {"Impersonate-Group": {"g"}},
		"an empty user":   {"Impersonate-User": {""}, "Impersonate-Group": {"g"}},
		"two users":       {"Impersonate-User": {"a", "b"}, "Impersonate-Group": {"g"}},
		"no group":        {"Impersonate-User": {"a"}},
		"a caller's word": {"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}, "Authorization": {"Bearer x"}},
	} {
		if err := try(h); err == nil || sent != 0 {
			t.Errorf("%s: %v, sent %d", name, err, sent)
		}
	}
	if err := try(http.Header{"Impersonate-User": {"a"}, "Impersonate-Group": {"g"}}); err != nil || sent != 1 {
		t.Errorf("%v, sent %d", err, sent)
	}
}

// TestImpersonateUnderAPath: listproxy's own credentials are for one API server. Behind an address with a
// path there may be others, which a caller's path could reach.
func TestImpersonateUnderAPath(t *testing.T) {
	cfg := &rest.Config{Host: "https://api.example/clusters/a", BearerToken: "own"}
	up, err := New(cfg)
	expect.NoError(t, err)
	if err := up.Impersonate(cfg); err == nil || !strings.Contains(err.Error(), "/clusters/a") {
		t.Errorf("%v", err)
	}
}
