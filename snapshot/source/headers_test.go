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

// sourceOf returns a source of the collection r. Its requests are answered by answer.
func sourceOf(r CollectionKey, answer func(*http.Request) *http.Response) *Source {
	transport := proxytest.Transport(func(r *http.Request) (*http.Response, error) { return answer(r), nil })
	return &Source{
		Base: &url.URL{Scheme: "https", Host: "upstream"}, Collection: r, Client: &http.Client{Transport: transport},
	}
}

const (
	deprecatedWarning = `299 - "v1 Endpoints is deprecated"`
	tokenWarning      = `299 - "Use tokens from the TokenRequest API"`
)

// TestHeadersFail: for a list with warnings, Headers asks for /version, to learn which warnings concern only listproxy's own
// token. It fails if that request is refused.
func TestHeadersFail(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway} {
		s := sourceOf(CollectionKey{}, func(r *http.Request) *http.Response { return inmemory.Answer(r, code, "") })
		if got, err := s.Headers(t.Context(), ListResponse{Header: http.Header{"Warning": {tokenWarning}}}); err == nil {
			t.Errorf("the version is answered %d: got headers %q, want an error", code, got)
		}
	}
}

// TestHeaders: Headers returns the headers of a list that every client gets. It leaves out warnings about listproxy's own
// token, which come with any answer. It makes a request for those only if the list has warnings.
func TestHeaders(t *testing.T) {
	const hsts = "max-age=3600"
	for name, tt := range map[string]struct {
		anyAnswer    []string // the warnings with any answer to listproxy
		list         []string // the warnings with the list
		wantWarnings []string
		wantRequests int // the number of requests for the warnings with any answer
	}{
		"no warning": {},
		"a warning about the token": {
			anyAnswer: []string{tokenWarning}, list: []string{tokenWarning}, wantRequests: 1,
		},
		"warnings about the token and the resource": {
			anyAnswer: []string{tokenWarning}, list: []string{tokenWarning, deprecatedWarning},
			wantWarnings: []string{deprecatedWarning}, wantRequests: 1,
		},
		"two warnings about the resource": {
			list: []string{deprecatedWarning, "299 - b"}, wantWarnings: []string{deprecatedWarning, "299 - b"}, wantRequests: 1,
		},
		"a warning about the token that the list does not have": {
			anyAnswer: []string{tokenWarning}, list: []string{deprecatedWarning},
			wantWarnings: []string{deprecatedWarning}, wantRequests: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			s := sourceOf(CollectionKey{Representation: media.JSON}, func(r *http.Request) *http.Response {
				expect.Same(t, "/version", r.URL.Path)
				requests++
				answer := inmemory.Answer(r, http.StatusForbidden, "")
				answer.Header["Warning"] = tt.anyAnswer
				return answer
			})
			got, err := s.Headers(t.Context(), ListResponse{Header: http.Header{
				"Date": {"today"}, "Audit-Id": {"1"}, "Content-Type": {media.JSONType}, "X-Kubernetes-Pf-Flowschema-Uid": {"2"},
				"Cache-Control": {"no-cache, private"}, "Strict-Transport-Security": {hsts}, "Warning": tt.list,
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
