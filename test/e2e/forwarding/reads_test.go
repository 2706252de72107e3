package forwarding

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
)

const (
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	// dropping is what client-go 1.38 sends for a client that wants no managed fields.
	dropping = "application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields"
)

func accept(types string) http.Header { return http.Header{"Accept": {types}} }

// TestReads asks for everything that can be read and is not a list that listproxy answers.
func TestReads(t *testing.T) {
	ns := newNamespace(t)
	newConfigMap(t, ns, "one", map[string]string{"key": "value"})
	newConfigMap(t, ns, "two", map[string]string{"large": strings.Repeat("kubernetes ", 20_000)})
	newPod(t, ns, "pod")

	maps := "/api/v1/namespaces/" + ns + "/configmaps"
	one := maps + "/one"
	pod := "/api/v1/namespaces/" + ns + "/pods/pod"
	tests := map[string]struct {
		path   string
		header http.Header
		method string
		reason string // default not-list
		status int    // default 200
	}{
		"one":                       {path: one},
		"one, YAML":                 {path: one, header: accept("application/yaml")},
		"one, protobuf":             {path: one, header: accept(asProtobuf)},
		"one, Table":                {path: one, header: accept(asTable)},
		"one, CBOR":                 {path: one, header: accept("application/cbor"), status: 406},
		"one, pretty":               {path: one + "?pretty=true"},
		"one, gzip":                 {path: maps + "/two", header: http.Header{"Accept-Encoding": {"gzip"}}},
		"one, old":                  {path: one + "?resourceVersion=0"},
		"one, unacceptable":         {path: one, header: accept("text/html"), status: 406},
		"none":                      {path: maps + "/none", status: 404},
		"status":                    {path: pod + "/status"},
		"scale of nothing":          {path: "/apis/apps/v1/namespaces/" + ns + "/deployments/none/scale", status: 404},
		"logs":                      {path: pod + "/log?container=main"},
		"logs of no container":      {path: pod + "/log?container=other", status: 400},
		"proxy to a pod":            {path: pod + "/proxy/index.html?q=1", status: 400},
		"proxy to a node":           {path: "/api/v1/nodes/" + nodeName + "/proxy/healthz", status: 400},
		"a list":                    {path: maps, reason: "most-recent"},
		"a list, Table":             {path: maps + "?limit=500", header: accept(asTable + ",application/json"), reason: "representation"},
		"a list, Table, any":        {path: maps + "?resourceVersion=0", header: accept(asTable), reason: "representation"},
		"a list, YAML":              {path: maps + "?resourceVersion=0", header: accept("application/yaml"), reason: "representation"},
		"a list, protobuf":          {path: maps, header: accept(asProtobuf), reason: "most-recent"},
		"a list, metadata":          {path: maps, header: accept(asMetadata), reason: "most-recent"},
		"a list, gzip":              {path: maps, header: http.Header{"Accept-Encoding": {"gzip"}}, reason: "most-recent"},
		"a list, fields dropped":    {path: maps + "?resourceVersion=0", header: accept("application/json;drop=metadata.managedFields"), reason: "representation"},
		"a list, client-go's drop":  {path: maps + "?limit=500&resourceVersion=0", header: accept(dropping), reason: "representation"},
		"a list, pretty":            {path: maps + "?pretty=1", reason: "most-recent"},
		"a list, pretty, escaped":   {path: maps + "?resourceVersion=0&pr%65tty=1", reason: "not-canonical"},
		"a list for curl":           {path: maps + "?limit=500", header: http.Header{"User-Agent": {"curl/8"}}, reason: "most-recent"},
		"a list, refused":           {path: maps + "?resourceVersionMatch=Exact", reason: "not-canonical", status: 422},
		"a list, malformed limit":   {path: maps + "?limit=x", reason: "not-canonical", status: 400},
		"a list, unknown parameter": {path: maps + "?color=red&resourceVersion=0", reason: "not-canonical"},
		"a list of events":          {path: "/api/v1/events?resourceVersion=0", reason: "not-cached"},
		"a list of nothing known":   {path: "/api/v1/unicorns?resourceVersion=0", reason: "unknown-resource", status: 404},
		"a list of a deprecated":    {path: "/api/v1/endpoints", reason: "most-recent"}, // with a Warning
		"core discovery":            {path: "/api"},
		"group discovery":           {path: "/apis"},
		"version discovery":         {path: "/apis/apps/v1"},
		"aggregated discovery":      {path: "/apis", header: accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")},
		"openapi v2":                {path: "/openapi/v2", header: http.Header{"Accept": {"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}, "Accept-Encoding": {"gzip"}}},
		"openapi v3":                {path: "/openapi/v3"},
		"openapi v3 of a group":     {path: "/openapi/v3/apis/apps/v1"},
		"version":                   {path: "/version"},
		"livez":                     {path: "/livez?verbose"},
		"readyz":                    {path: "/readyz/ping"},
		"healthz":                   {path: "/healthz"},
		"healthz, HEAD":             {path: "/healthz", method: http.MethodHead},
		"the root":                  {path: "/"},
		"issuer":                    {path: "/.well-known/openid-configuration"},
		"nowhere":                   {path: "/nowhere", status: 404},
		"double slashes":            {path: "//api//v1//nodes", status: 404, reason: "not-list"},
		"escapes":                   {path: maps + "/%6fne%2F?x=%zz"},
		"no method":                 {path: one, method: "BREW", status: 405},
		"OPTIONS":                   {path: one, method: http.MethodOptions, status: 405},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.reason == "" {
				test.reason = "not-list"
			}
			if test.status == 0 {
				test.status = http.StatusOK
			}
			for _, proto := range []string{http1, http2} {
				got := same(t, call{proto: proto, method: test.method, path: test.path, header: test.header}, test.reason)
				if got.Status != test.status {
					t.Errorf("%s: status %d, want %d: %.200s", proto, got.Status, test.status, got.Body)
				}
			}
		})
	}
}

// TestFromTheFuture waits for a revision that does not come, three seconds long, as the API server
// does.
func TestFromTheFuture(t *testing.T) {
	t.Parallel()
	c := call{path: "/api/v1/namespaces/default/configmaps?resourceVersion=1000000000"}
	straight := make(chan reply, 1)
	go func() { straight <- direct.do(t, c) }()
	got, want := via.do(t, c), <-straight
	wantForwarded(t, got, "not-proven")
	current := regexp.MustCompile(`current: [0-9]+`) // may have moved between the two
	for _, r := range []*reply{&want, &got} {
		r.Body = current.ReplaceAllString(r.Body, "current: N")
	}
	if d := diff(want.impersonal(), got.impersonal()); d != "" || got.Status != http.StatusGatewayTimeout {
		t.Errorf("status %d (-direct +via):\n%s", got.Status, d)
	}
}

// TestGone asks for what etcd has forgotten: of events, for which the API server always asks etcd.
func TestGone(t *testing.T) {
	newNamespace(t) // so that there is more than one revision
	expect.NoError(t, cp.CompactEtcd(t.Context()))
	for _, path := range []string{
		"/api/v1/events?resourceVersionMatch=Exact&resourceVersion=1",
		// The answer holds a token to go on with.
		"/api/v1/events?limit=1&continue=" + policy.EncodeContinue(1, "default/x"),
	} {
		if got := same(t, call{path: path}, "not-cached"); got.Status != http.StatusGone {
			t.Errorf("%s: status %d: %.300s", path, got.Status, got.Body)
		}
	}
	// The API server's cache may still know this one.
	same(t, call{path: "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=1"}, "history")
}

// TestConditionalRead has the API server say that a client's copy is still good.
func TestConditionalRead(t *testing.T) {
	c := call{path: "/openapi/v3/apis/batch/v1"}
	etag := via.do(t, c).Header.Get("Etag")
	if etag == "" {
		t.Fatal("no ETag")
	}
	c.header = http.Header{"If-None-Match": {etag}}
	if got := same(t, c, "not-list"); got.Status != http.StatusNotModified {
		t.Errorf("status %d", got.Status)
	}
}
