package source

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// newTestSource returns a source of a collection. The function answer answers its requests.
func newTestSource(collection CollectionKey, answer func(*http.Request) *http.Response) *Source {
	transport := proxytest.Transport(func(r *http.Request) (*http.Response, error) { return answer(r), nil })
	return &Source{
		Client:     &http.Client{Transport: transport},
		Base:       &url.URL{Scheme: "https", Host: "upstream"},
		Collection: collection,
	}
}

const (
	deprecatedWarning = `299 - "v1 Endpoints is deprecated"`
	tokenWarning      = `299 - "Use tokens from the TokenRequest API"`
)

// TestHeadersFail: for a list with warnings, Headers requests /version, to learn which warnings are about listproxy's own
// token. Headers returns an error if that request is refused.
func TestHeadersFail(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway} {
		s := newTestSource(CollectionKey{}, func(r *http.Request) *http.Response { return inmemory.Answer(r, code, "") })
		if got, err := s.Headers(t.Context(), ListResponse{Header: http.Header{"Warning": {tokenWarning}}}); err == nil {
			t.Errorf("the upstream answers /version with %d: got headers %q, want an error", code, got)
		}
	}
}

// TestHeaders: Headers returns the headers of a list that every client gets. It leaves out warnings about listproxy's own
// token. The upstream sends these with any answer to listproxy, also to GET /version. Headers requests /version only if the
// list has warnings.
func TestHeaders(t *testing.T) {
	const hsts = "max-age=3600"
	for name, tt := range map[string]struct {
		listWarnings    []string // the warnings that come with the list
		versionWarnings []string // the warnings that come with /version
		wantWarnings    []string
		wantRequests    int // the number of requests for /version
	}{
		"no warning": {},
		"a warning about the token": {
			listWarnings: []string{tokenWarning}, versionWarnings: []string{tokenWarning}, wantRequests: 1,
		},
		"warnings about the token and the resource": {
			listWarnings: []string{tokenWarning, deprecatedWarning}, versionWarnings: []string{tokenWarning},
			wantWarnings: []string{deprecatedWarning}, wantRequests: 1,
		},
		"two warnings about the resource": {
			listWarnings: []string{deprecatedWarning, "299 - b"},
			wantWarnings: []string{deprecatedWarning, "299 - b"}, wantRequests: 1,
		},
		"a warning about the token that the list does not have": {
			listWarnings: []string{deprecatedWarning}, versionWarnings: []string{tokenWarning},
			wantWarnings: []string{deprecatedWarning}, wantRequests: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			s := newTestSource(CollectionKey{Representation: media.JSON}, func(r *http.Request) *http.Response {
				expect.Same(t, "/version", r.URL.Path)
				requests++
				answer := inmemory.Answer(r, http.StatusForbidden, "")
				answer.Header["Warning"] = tt.versionWarnings
				return answer
			})
			got, err := s.Headers(t.Context(), ListResponse{Header: http.Header{
				"Date": {"today"}, "Audit-Id": {"1"}, "Content-Type": {media.JSONType}, "X-Kubernetes-Pf-Flowschema-Uid": {"2"},
				"Cache-Control": {"no-cache, private"}, "Strict-Transport-Security": {hsts}, "Warning": tt.listWarnings,
			}})
			expect.NoError(t, err)
			want := http.Header{"Cache-Control": {"no-cache, private"}, "Strict-Transport-Security": {hsts}}
			if tt.wantWarnings != nil {
				want["Warning"] = tt.wantWarnings
			}
			expect.Same(t, want, got)
			expect.Same(t, tt.wantRequests, requests)
		})
	}
}
