package policy

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

// TestIndented: the parameter, if it says anything, counts more than the User-Agent; the clause of
// the Accept header that is chosen counts beside both.
func TestIndented(t *testing.T) {
	const (
		curl     = "User-Agent: curl/8.5.0\r\n"
		pretty   = "Accept: application/json;pretty=1\r\n"
		protobuf = "Accept: " + protobufType + "\r\n"
	)
	for _, test := range []struct {
		query   string
		headers string
		want    bool
	}{
		{"", "", false},
		{"?pretty=true", "", true},
		{"?pretty=1", "", true},
		{"?pretty=t", "", true},
		{"?pretty=True", "", true},
		{"?pretty=%54", "", true},
		{"?pretty=yes", "", false},
		{"?pretty=tRUE", "", false},
		{"?pretty=0", "", false},
		{"?pretty", "", false},
		{"?pretty=", "", false},
		{"?labelSelector=pretty", "", false},
		{"", curl, true},
		{"", "User-Agent: curl\r\n", true},
		{"", "User-Agent: Wget/1.21\r\n", true},
		{"", "User-Agent: Mozilla/5.0 (X11)\r\n", true},
		{"", "User-Agent: Mozilla/4.0\r\n", false},
		{"", "User-Agent: Curl/8.5.0\r\n", false},
		{"", "User-Agent: libcurl/8.5.0\r\n", false},
		{"", "User-Agent: kubectl\r\nUser-Agent: curl/8\r\n", false},
		{"?pretty=false", curl, false},
		{"?pretty=no", curl, false},
		{"?pretty", curl, true},
		{"?labelSelector=pretty", curl, true},
		{"", pretty, true},
		{"?pretty=false", pretty, true},
		{"?pretty=true", protobuf, false},
		{"", curl + protobuf, false},
		{"", curl + "Accept: application/json" + asMetadata + "\r\n", true},
		{"", curl + "Accept: " + protobufType + asMetadata + "\r\n", false},
	} {
		r := read(t, get("/api/v1/pods"+test.query, alice, test.headers))
		req, why := parse(r)
		if why != "" {
			t.Errorf("%q, %q: %s", test.query, test.headers, why)
			continue
		}
		if got := req.Indented(false); got != test.want {
			t.Errorf("%q, %q: %t", test.query, test.headers, got)
		}
		checkPretty(t, r, req)
	}
	// For a custom resource, the clause after protobuf applies.
	r := read(t, get("/apis/example.com/v1/things", alice, curl, "Accept: "+protobufType+",application/json\r\n"))
	if req, why := parse(r); why != "" || req.Indented(false) || !req.Indented(true) {
		t.Errorf("protobuf, then JSON, for curl: %s, %t, %t", why, req.Indented(false), req.Indented(true))
	}
}

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

// FuzzPretty mutates what decides it, by itself.
func FuzzPretty(f *testing.F) {
	f.Add("pretty=1", "x", "application/json")
	f.Add("pretty=false", "curl/8", "")
	f.Add("pretty&limit=5", "Mozilla/5.0", "application/vnd.kubernetes.protobuf,*/*;pretty=1")
	f.Add("pr%65tty=true", "Wget", "application/json;pretty=1;q=0.5,application/yaml")
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
