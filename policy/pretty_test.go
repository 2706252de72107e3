package policy

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

// checkPretty: we indent what the API server's own code would indent.
func checkPretty(t *testing.T, r *http.Request, req Request) {
	t.Helper()
	for _, custom := range []bool{false, true} {
		if _, why := req.Accept.Representation(custom); why != "" {
			continue
		}
		_, info, err := negotiation.NegotiateOutputMediaType(r, scheme.Codecs, restrictions{custom})
		if err != nil {
			t.Errorf("custom %t: not acceptable to the upstream: %v", custom, err)
			continue
		}
		want := info.PrettySerializer != nil && info.Serializer == info.PrettySerializer
		if got := req.Indented(custom); got != want {
			t.Errorf("%q, %v, custom %t: indented %t, the upstream says %t", r.URL.RawQuery, r.Header, custom, got, want)
		}
	}
}

// FuzzPretty: the parameter, the User-Agent and the clause of the Accept header that is chosen decide it
// together.
func FuzzPretty(f *testing.F) {
	for _, query := range []string{
		"", "pretty=1", "pretty=t", "pretty=True", "pretty=%54", "pretty=yes", "pretty=tRUE", "pretty=0", "pretty=false", "pretty", "pretty=",
		"labelSelector=pretty", "pretty&limit=5", "pr%65tty=true",
	} {
		for _, userAgent := range []string{
			"", "x", "curl", "curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "Mozilla/4.0", "Curl/8.5.0", "libcurl/8.5.0",
		} {
			for _, accept := range []string{
				"", "application/json", "application/json;pretty=1", "application/json" + asMetadata, protobufType, protobufType + asMetadata,
				protobufType + ",application/json", protobufType + ",*/*;pretty=1", "application/json;pretty=1;q=0.5,application/yaml",
			} {
				f.Add(query, userAgent, accept)
			}
		}
	}
	f.Fuzz(func(t *testing.T, query, userAgent, accept string) {
		r := &http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: "/api/v1/pods", RawQuery: query}, RequestURI: "/api/v1/pods?" + query,
			Header: http.Header{"User-Agent": {userAgent}, "Accept": {accept}, "Authorization": {"Bearer x"}},
			Body:   http.NoBody,
		}
		if req, why := parse(r); why == "" {
			checkPretty(t, r, req)
		}
	})
}
