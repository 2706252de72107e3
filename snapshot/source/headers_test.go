package source

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// sourceOf is a source whose requests are answered in memory.
func sourceOf(r CollectionKey, answer func(*http.Request) *http.Response) *Source {
	transport := proxytest.Transport(func(r *http.Request) (*http.Response, error) { return answer(r), nil })
	return &Source{
		Base: &url.URL{Scheme: "https", Host: "upstream"}, Resource: r, Client: &http.Client{Transport: transport},
	}
}

// TestHeaders: headers that everybody gets with a list are kept, and warnings that only listproxy gets are not.
func TestHeaders(t *testing.T) {
	const deprecated, token = `299 - "v1 Endpoints is deprecated"`, `299 - "Use tokens from the TokenRequest API"`
	const hsts = "max-age=3600"
	for _, code := range []int{http.StatusTooManyRequests, http.StatusBadGateway} {
		s := sourceOf(CollectionKey{}, func(r *http.Request) *http.Response { return proxytest.JSONResponse(r, code, "") })
		if got, err := s.Headers(t.Context(), ListResponse{Header: http.Header{"Warning": {token}}}); err == nil {
			t.Errorf("%d: listproxy's own warnings are not known, and everybody gets %q", code, got)
		}
	}
	for name, tt := range map[string]struct {
		own, list    []string // warnings that listproxy gets with any answer, and with the list
		wantWarnings []string
		wantAsked    int // for listproxy's own warnings
	}{
		"no warning":           {},
		"of the resource":      {list: []string{deprecated}, wantWarnings: []string{deprecated}, wantAsked: 1},
		"of listproxy's token": {own: []string{token}, list: []string{token}, wantAsked: 1},
		"of both": {
			own: []string{token}, list: []string{token, deprecated}, wantWarnings: []string{deprecated}, wantAsked: 1,
		},
		"two of the resource": {
			list: []string{deprecated, "299 - b"}, wantWarnings: []string{deprecated, "299 - b"}, wantAsked: 1,
		},
		"of the token, not with the list": {
			own: []string{token}, list: []string{deprecated}, wantWarnings: []string{deprecated}, wantAsked: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := sourceOf(CollectionKey{Representation: media.JSON}, func(r *http.Request) *http.Response {
				expect.Same(t, "/version", r.URL.Path)
				asked++
				answer := proxytest.JSONResponse(r, http.StatusForbidden, "")
				answer.Header["Warning"] = tt.own
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
			expect.Same(t, tt.wantAsked, asked)
		})
	}
}
