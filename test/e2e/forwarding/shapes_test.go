package forwarding

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// A shape is the way in which a client library writes requests: its headers, and the order and spelling of its queries'
// parameters. docs/compatibility.md names the versions of the libraries.
type shape struct {
	client    string
	httpMajor int // 1 or 2
	header    http.Header

	// Queries of lists and watches, by where their answers come from. {rv} stands for a revision, and {token} for a continue
	// token.

	served           []string // lists: from memory
	consistent       []string // lists: from memory only with --consistent-lists
	watches          []string // watches: from memory only with --watches
	forwarded        []string // lists in a representation that is always forwarded
	forwardedWatches []string // watches in such a representation
}

// A request is a query of a shape, and what must be in the Cache-Status of two listproxies: the reason for which the listproxy
// forwards the query, or hit.
type request struct {
	query    string
	plain    string // of a listproxy with its defaults
	switched string // of a listproxy with --consistent-lists=always and --watches
}

// hit stands for an answer from memory.
const hit = "hit"

// requests returns all requests of the shape.
func (s shape) requests() (all []request) {
	add := func(queries []string, plain, switched string) {
		for _, query := range queries {
			all = append(all, request{query: query, plain: plain, switched: switched})
		}
	}
	add(s.served, hit, hit)
	add(s.consistent, "consistent", hit)
	add(s.watches, "watch", hit)
	add(s.forwarded, "representation", "representation")
	add(s.forwardedWatches, "watch", "representation")
	return all
}

// shapes returns the shapes of current clients. Those of Python and JavaScript were recorded, the others are read from
// the sources of the clients.
func shapes() []shape {
	metadata := func(kind string) string { return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1" }
	const (
		// dropping is what client-go 1.38 sends for a client that wants no managed fields.
		dropping  = "application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields"
		inJSON    = "application/json"
		rustPage  = "?&limit=10"
		rustAny   = "?&resourceVersion=0"
		rustWatch = "?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true"
		streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
		goWatch   = "&timeoutSeconds=375&watch=true"
		goStream  = "?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true" + goWatch
	)
	return []shape{
		{
			client: "Python", httpMajor: 1,
			header:     http.Header{"Accept": {inJSON}, "Accept-Encoding": {"identity"}, "Content-Type": {inJSON}, "User-Agent": {"OpenAPI-Generator/22.6.0/python"}},
			consistent: []string{"", "?limit=10"},
			served:     []string{"?resourceVersion=0", "?continue={token}&limit=10", "?allowWatchBookmarks=False&resourceVersion=0&watch=False"},
			watches: []string{
				"?watch=True", "?resourceVersion={rv}&watch=True", "?resourceVersion={rv}&timeoutSeconds=60&watch=True",
				"?allowWatchBookmarks=True&resourceVersion={rv}&watch=True",
				"?allowWatchBookmarks=True&sendInitialEvents=True&watch=True&resourceVersionMatch=NotOlderThan",
			},
		},
		{
			client: "JavaScript", httpMajor: 1,
			header:     http.Header{"Accept": {"application/json, */*;q=0.8"}, "Accept-Encoding": {"gzip,deflate"}, "Connection": {"close"}, "User-Agent": {"node-fetch/1.0 (+https://github.com/bitinn/node-fetch)"}},
			consistent: []string{"", "?limit=10"}, served: []string{"?resourceVersion=0"},
		},
		{
			client: "JavaScript, watches", httpMajor: 1,
			header:  http.Header{"Accept": {"*/*"}, "Accept-Encoding": {"gzip,deflate"}, "Connection": {"close"}},
			watches: []string{"?watch=true&resourceVersion={rv}", "?watch=true"},
		},
		{
			client: "kube-rs", httpMajor: 1, header: http.Header{"Accept-Encoding": {"gzip"}},
			consistent: []string{"?", rustPage},
			served:     []string{rustPage + "&continue={token}", rustAny, "?&resourceVersion={rv}&resourceVersionMatch=NotOlderThan"},
			watches:    []string{rustWatch + "&resourceVersion={rv}", rustWatch + "&resourceVersion=0", rustWatch + streaming},
		},
		{
			// Newer ones, which cannot read the watches that 1.37 compresses.
			client: "kube-rs, uncompressed watches", httpMajor: 1, header: http.Header{"Accept-Encoding": {"identity"}},
			watches: []string{rustWatch + "&resourceVersion={rv}", rustWatch + streaming},
		},
		{
			client: "kube-rs, lists of metadata", httpMajor: 1, header: http.Header{"Accept": {metadata("PartialObjectMetadataList")}, "Content-Type": {inJSON}},
			consistent: []string{rustPage}, served: []string{rustAny},
		},
		{
			client: "kube-rs, watches of metadata", httpMajor: 1, header: http.Header{"Accept": {metadata("PartialObjectMetadata")}, "Content-Type": {inJSON}},
			watches: []string{rustWatch + "&resourceVersion={rv}"},
		},
		{
			client: "fabric8", httpMajor: 2, header: http.Header{"Accept-Encoding": {"gzip"}, "User-Agent": {"fabric8-kubernetes-client/7.4.0"}},
			consistent: []string{"", "?limit=10"},
			served:     []string{"?resourceVersion=0", "?limit=10&resourceVersion=0", "?limit=10&continue={token}"},
			watches: []string{
				"?allowWatchBookmarks=true&resourceVersion={rv}&timeoutSeconds=600&watch=true", "?allowWatchBookmarks=true&watch=true",
			},
		},
		{
			client: "Java", httpMajor: 2,
			header:     http.Header{"Accept": {inJSON}, "Accept-Encoding": {"gzip"}, "Content-Type": {inJSON}, "User-Agent": {"Kubernetes Java Client/26.0.0"}},
			consistent: []string{"", "?resourceVersion=&watch=false", "?limit=10&watch=false"},
			served:     []string{"?resourceVersion=0&watch=false", "?resourceVersion={rv}&watch=false"},
			watches:    []string{"?resourceVersion={rv}&timeoutSeconds=412&watch=true"},
		},
		{
			client: "C#", httpMajor: 2, header: http.Header{},
			consistent: []string{"", "?limit=10"}, served: []string{"?resourceVersion=0", "?continue={token}&limit=10"},
			watches: []string{"?watch=true", "?resourceVersion={rv}&watch=true"},
		},
		{
			client: "client-go", httpMajor: 2, header: http.Header{"Accept": {inJSON}, "Accept-Encoding": {"gzip"}},
			consistent: []string{"", "?limit=10"},
			served:     []string{"?limit=10&continue={token}", "?limit=500&resourceVersion=0", "?resourceVersion={rv}"},
			watches: []string{
				"?allowWatchBookmarks=true&resourceVersion={rv}" + goWatch, goStream,
				"?allowWatchBookmarks=true&resourceVersion={rv}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true" + goWatch,
			},
		},
		{
			client: "client-go 1.38 without managed fields", httpMajor: 2, header: http.Header{"Accept": {dropping}, "Accept-Encoding": {"gzip"}},
			forwarded:        []string{"", "?limit=500&resourceVersion=0", "?limit=10&continue={token}"},
			forwardedWatches: []string{"?allowWatchBookmarks=true&resourceVersion={rv}" + goWatch, goStream},
		},
		{
			client: "kubectl", httpMajor: 2,
			header:    http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"}},
			forwarded: []string{"?limit=500"}, forwardedWatches: []string{"?resourceVersion={rv}&watch=true"},
		},
	}
}

const (
	// shapeConfigMaps is the number of ConfigMaps that a list at {rv} has. Such a list is large enough for gzip.
	shapeConfigMaps = 25
	// eventsAfterRV is the number of ConfigMaps created after {rv}.
	eventsAfterRV = 2
)

// TestShapes: what clients of several languages send gets kube-apiserver's answer, and comes from memory or is forwarded as
// the shape says, from a listproxy with its defaults and from one with --consistent-lists=always and --watches.
func TestShapes(t *testing.T) {
	t.Parallel()
	switched := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args:     []string{"--connect-port", "0", "--consistent-lists=always", "--watches", "--history-window", longWindow, "--eager", "configmaps"},
	})
	ns := newNamespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	// Step 1: load every representation, so that memory holds the history from {rv} on.
	for _, route := range []way{viaServer, switched.RESTConfig} {
		for _, s := range shapes() {
			poll.Until(t, patience, s.client+": the representation is loaded", func() bool {
				_, cacheStatus := s.send(t, route, path+"?resourceVersion=0")
				return !strings.Contains(cacheStatus, "fwd=miss")
			})
		}
	}

	// Step 2: create the objects before, at and after {rv}.
	for i := range shapeConfigMaps - 1 {
		newConfigMap(t, ns, fmt.Sprintf("map-%02d", i), map[string]string{"text": strings.Repeat("0123456789", 1000)})
	}
	revision := newConfigMap(t, ns, "map-at-rv", nil)
	for i := range eventsAfterRV {
		newConfigMap(t, ns, fmt.Sprintf("map-later-%d", i), nil)
	}
	page, err := ask.ReadList(get(t, direct.clientOf(t, controlplane.Admin), path+"?limit=10").Body)
	expect.NoError(t, err)
	fill := strings.NewReplacer("{rv}", revision, "{token}", page.Next)

	// Step 3: send every request in each way.
	testAll := func(name string, route way, want func(request) string) {
		for _, s := range shapes() {
			for _, r := range s.requests() {
				t.Run(fmt.Sprintf("%s/%s %s", name, s.client, r.query), func(t *testing.T) {
					t.Parallel()
					s.compare(t, route, path+fill.Replace(r.query), want(r))
				})
			}
		}
	}
	plain := func(r request) string { return r.plain }
	withSwitches := func(r request) string { return r.switched }
	testAll("default, server", viaServer, plain)
	testAll("switched, server", switched.RESTConfig, withSwitches)
	if !testing.Short() {
		testAll("default, proxy-url", viaProxyURL, plain)
		testAll("switched, proxy-url", switched.TunnelConfig, withSwitches)
	}
}

// compare requires that listproxy's answer has the bytes of kube-apiserver's own. It must come from memory if want is hit, and
// otherwise be forwarded for the reason want. kube-apiserver is asked before listproxy, and once more after it. If its two
// answers differ, because of a write in between or of the ages in a Table, all three are asked for again.
func (s shape) compare(t *testing.T, route way, target, want string) {
	t.Helper()
	var before, got response
	var cacheStatus string
	poll.Until(t, patience, "kube-apiserver answers the same twice, and listproxy has a lasting reason", func() bool {
		before, _ = s.send(t, direct, target)
		got, cacheStatus = s.send(t, route, target)
		after, _ := s.send(t, direct, target)
		// These reasons do not last: the collection is being loaded, or on a busy machine a review or a proof that memory has
		// the newest state came too late.
		passing := slices.ContainsFunc([]string{"warming", "review-failed", "not-proven"}, func(reason string) bool {
			return strings.HasSuffix(cacheStatus, "="+reason)
		})
		return before == after && !passing
	})
	wantStatus := "listproxy; fwd=bypass; detail=" + want
	if want == hit {
		wantStatus = "listproxy; hit"
		// The token of a page from memory may have a slash where kube-apiserver, which read the page from etcd, writes none.
		if body.SameButToken([]byte(before.Body), []byte(got.Body)) {
			got.Body = before.Body
		}
	}
	if !strings.HasPrefix(cacheStatus, wantStatus) {
		t.Errorf("Cache-Status is %q, want %q", cacheStatus, wantStatus)
	}
	expect.Same(t, before, got)
}

// A response is what a client sees of an answer.
type response struct {
	Head string // the status, and what a client needs to read the body
	Body string // decoded, and without movingRevision
}

// movingRevision matches the revision of a list or of a bookmark, which moves with every write in the cluster.
var movingRevision = regexp.MustCompile(`("kind":"[A-Za-z]+List",.{0,50}"metadata":\{|"BOOKMARK".*)"resourceVersion":"[0-9]+"`)

// send sends a GET as the client does, and returns the response with its Cache-Status. Of a watch it reads the events that are
// certain to come.
func (s shape) send(t *testing.T, route way, target string) (_ response, cacheStatus string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	config := route(cp.RESTConfig(controlplane.Admin))
	config.DisableCompression = true // bytes are compared as sent
	if s.httpMajor == 1 {
		config.NextProtos = []string{"http/1.1"}
	}
	client := ask.MustNew(t, config, patience)
	client.Header = http.Header{"Accept": nil}
	maps.Copy(client.Header, s.header)
	res, err := client.Open(ctx, http.MethodGet, target, nil)
	expect.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	if res.ProtoMajor != s.httpMajor {
		t.Fatalf("the answer came over %s", res.Proto)
	}
	var content io.Reader = res.Body
	if res.Header.Get("Content-Encoding") == "gzip" {
		content = events.Unzip(content)
	}
	text := readBody(t, content, eventsToRead(t, target))
	return response{
		Head: fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type"), " ", res.Header.Get("Content-Encoding")),
		Body: movingRevision.ReplaceAllString(text, `$1"resourceVersion":"~"`),
	}, res.Header.Get("Cache-Status")
}

// readBody reads count events, which are lines of JSON, or a whole body if count is 0.
func readBody(t *testing.T, from io.Reader, count int) (text string) {
	t.Helper()
	if count == 0 {
		all, err := io.ReadAll(from)
		expect.NoError(t, err)
		return string(all)
	}
	in := bufio.NewReader(from)
	for range count {
		line, err := in.ReadString('\n')
		expect.NoError(t, err)
		text += line
	}
	return text
}

// eventsToRead returns how many events a watch is certain to have, and 0 for a list. A watch from {rv} has the eventsAfterRV. A
// watch with initial events has one for each object, and then a bookmark if the client allows bookmarks.
func eventsToRead(t *testing.T, target string) int {
	t.Helper()
	_, rawQuery, _ := strings.Cut(target, "?")
	query, err := url.ParseQuery(rawQuery)
	expect.NoError(t, err)
	revision := query.Get("resourceVersion")
	switch {
	case !strings.EqualFold(query.Get("watch"), "true"):
		return 0
	case revision != "" && revision != "0" && !query.Has("sendInitialEvents"):
		return eventsAfterRV
	case strings.EqualFold(query.Get("allowWatchBookmarks"), "true"):
		return shapeConfigMaps + eventsAfterRV + 1
	}
	return shapeConfigMaps + eventsAfterRV
}
