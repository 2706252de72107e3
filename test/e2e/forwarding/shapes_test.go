package forwarding

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// shape is how a client of some language writes a request. docs/compatibility.md says of which
// version.
type shape struct {
	client string
	proto  string
	header http.Header
	// queries of lists and watches, with {rv} and {token} for a revision and a continue token, and
	// what becomes of each: a reason to forward it, or hit. The first is without switches, the
	// second with both.
	queries map[string][2]string
}

const (
	hit = "hit"
	// shapeMaps is how many objects there are: enough for gzip.
	shapeMaps = 24
	shapePage = 10
)

// What becomes of a request.
var (
	always  = [2]string{hit, hit}
	newest  = [2]string{"most-recent", hit}
	watches = [2]string{"watch", hit}
	never   = [2]string{"representation", "representation"}
)

// shapes are those of clients of today. What the Python and JavaScript clients send was recorded,
// the others' is from their sources.
func shapes() []shape {
	const pageOf = "limit=10&continue={token}"
	metadata := func(kind string) string { return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1" }
	return []shape{
		{
			client: "Python", proto: http1,
			header: http.Header{
				"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "Content-Type": {"application/json"},
				"User-Agent": {"OpenAPI-Generator/22.6.0/python"},
			},
			queries: map[string][2]string{
				"": newest, "?limit=10": newest, "?resourceVersion=0": always, "?continue={token}&limit=10": always,
				"?watch=True": watches, "?resourceVersion={rv}&watch=True": watches,
				"?resourceVersion={rv}&timeoutSeconds=60&watch=True":        watches,
				"?allowWatchBookmarks=True&resourceVersion={rv}&watch=True": watches,
				"?allowWatchBookmarks=False&resourceVersion=0&watch=False":  always,
				"?allowWatchBookmarks=True&sendInitialEvents=True&watch=True" +
					"&resourceVersionMatch=NotOlderThan": watches,
			},
		},
		{
			client: "JavaScript", proto: http1,
			header: http.Header{
				"Accept": {"application/json, */*;q=0.8"}, "Accept-Encoding": {"gzip,deflate"}, "Connection": {"close"},
				"User-Agent": {"node-fetch/1.0 (+https://github.com/bitinn/node-fetch)"},
			},
			queries: map[string][2]string{
				"": newest, "?limit=10": newest, "?resourceVersion=0": always,
			},
		},
		{
			client: "JavaScript, watches", proto: http1,
			header: http.Header{"Accept": {"*/*"}, "Accept-Encoding": {"gzip,deflate"}, "Connection": {"close"}},
			queries: map[string][2]string{
				"?watch=true&resourceVersion={rv}": watches, "?watch=true": watches,
			},
		},
		{
			client: "kube-rs", proto: http1,
			header: http.Header{"Accept-Encoding": {"gzip"}},
			queries: map[string][2]string{
				"?": newest, "?&limit=10": newest, "?&" + pageOf: always, "?&resourceVersion=0": always,
				"?&resourceVersion={rv}&resourceVersionMatch=NotOlderThan":                      always,
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion={rv}": watches,
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion=0":    watches,
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&sendInitialEvents=true" +
					"&resourceVersionMatch=NotOlderThan&resourceVersion=0": watches,
			},
		},
		{
			// Newer ones, which cannot read the watches that 1.37 compresses.
			client: "kube-rs, uncompressed watches", proto: http1,
			header: http.Header{"Accept-Encoding": {"identity"}},
			queries: map[string][2]string{
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion={rv}": watches,
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&sendInitialEvents=true" +
					"&resourceVersionMatch=NotOlderThan&resourceVersion=0": watches,
			},
		},
		{
			client: "kube-rs without gzip", proto: http1, header: http.Header{},
			queries: map[string][2]string{
				"?&limit=10": newest, "?&resourceVersion=0": always,
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion={rv}": watches,
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&sendInitialEvents=true" +
					"&resourceVersionMatch=NotOlderThan&resourceVersion=0": watches,
			},
		},
		{
			client: "kube-rs, lists of metadata", proto: http1,
			header:  http.Header{"Accept": {metadata("PartialObjectMetadataList")}, "Content-Type": {"application/json"}},
			queries: map[string][2]string{"?&limit=10": newest, "?&resourceVersion=0": always},
		},
		{
			client: "kube-rs, watches of metadata", proto: http1,
			header: http.Header{"Accept": {metadata("PartialObjectMetadata")}, "Content-Type": {"application/json"}},
			queries: map[string][2]string{
				"?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion={rv}": watches,
			},
		},
		{
			client: "fabric8", proto: http2,
			header: http.Header{"Accept-Encoding": {"gzip"}, "User-Agent": {"fabric8-kubernetes-client/7.4.0"}},
			queries: map[string][2]string{
				"": newest, "?resourceVersion=0": always, "?limit=10": newest, "?limit=10&resourceVersion=0": always, "?" + pageOf: always,
				"?allowWatchBookmarks=true&resourceVersion={rv}&timeoutSeconds=600&watch=true": watches,
				"?allowWatchBookmarks=true&watch=true":                                         watches,
			},
		},
		{
			client: "Java", proto: http2,
			header: http.Header{
				"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "Content-Type": {"application/json"},
				"User-Agent": {"Kubernetes Java Client/26.0.0"},
			},
			queries: map[string][2]string{
				"": newest, "?resourceVersion=0&watch=false": always, "?resourceVersion={rv}&watch=false": always,
				"?resourceVersion=&watch=false": newest, "?limit=10&watch=false": newest,
				"?resourceVersion={rv}&timeoutSeconds=412&watch=true": watches,
			},
		},
		{
			client: "C#", proto: http2, header: http.Header{},
			queries: map[string][2]string{
				"": newest, "?limit=10": newest, "?resourceVersion=0": always, "?continue={token}&limit=10": always,
				"?watch=true": watches, "?resourceVersion={rv}&watch=true": watches,
			},
		},
		{
			client: "client-go", proto: http2,
			header: http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}},
			queries: map[string][2]string{
				"": newest, "?limit=10": newest, "?" + pageOf: always,
				"?limit=500&resourceVersion=0": always, "?resourceVersion={rv}": always,
				"?allowWatchBookmarks=true&resourceVersion={rv}&timeoutSeconds=375&watch=true":                                     watches,
				"?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=375&watch=true": watches,
				"?allowWatchBookmarks=true&resourceVersion={rv}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true" +
					"&timeoutSeconds=375&watch=true": watches,
			},
		},
		{
			client: "client-go 1.38 without managed fields", proto: http2,
			header: http.Header{"Accept": {dropping}, "Accept-Encoding": {"gzip"}},
			queries: map[string][2]string{
				"": never, "?limit=500&resourceVersion=0": never, "?" + pageOf: never,
				"?allowWatchBookmarks=true&resourceVersion={rv}&timeoutSeconds=375&watch=true": {"watch", "representation"},
				"?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=375&watch=true": {
					"watch", "representation",
				},
			},
		},
		{
			client: "kubectl", proto: http2,
			header: http.Header{
				"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"},
			},
			queries: map[string][2]string{"?limit=500": never, "?resourceVersion={rv}&watch=true": {"watch", "representation"}},
		},
	}
}

// TestShapes sends what clients of several languages send, through both doors, with the switches
// for the newest state and for watches and without. Whoever answers, the answer is the API server's
// own.
func TestShapes(t *testing.T) {
	on := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true,
		Args: []string{"--consistent-lists=always", "--watches", "--history-window", longWindow, "--eager", "configmaps"},
	})
	ns := newNamespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	for _, d := range []*door{via, doorOf(t, throughProxy(on))} {
		for _, s := range shapes() {
			poll.Until(t, patience, "what is watched from a revision is known from then on", func() bool {
				r := d.do(t, call{path: path + "?resourceVersion=0", header: s.header})
				return !strings.Contains(r.cacheStatus, "fwd=miss")
			})
		}
	}
	for i := range shapeMaps {
		newConfigMap(t, ns, fmt.Sprintf("map-%02d", i), map[string]string{"text": strings.Repeat("0123456789", 1000)})
	}
	// Two events happen after this revision.
	revision := newConfigMap(t, ns, "map-x", nil)
	newConfigMap(t, ns, "map-y", nil)
	newConfigMap(t, ns, "map-z", nil)
	for name, d := range map[string]struct {
		door     *door
		switches int
	}{
		"server": {via, 0}, "tunnel": {tunnel, 0},
		"server, with switches": {doorOf(t, throughProxy(on)), 1}, "tunnel, with switches": {doorOf(t, throughTunnel(on)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range shapes() {
				for query, becomes := range s.queries {
					t.Run(s.client+" "+query, func(t *testing.T) {
						list, err := ask.ReadList(ask.JSON, []byte(direct.do(t, call{path: fmt.Sprint(path, "?limit=", shapePage)}).Body))
						expect.NoError(t, err)
						c := call{
							proto: s.proto, header: s.header,
							path: path + strings.NewReplacer("{rv}", revision, "{token}", list.Next).Replace(query),
						}
						same := sameList
						if strings.EqualFold(asked(t, c).Get("watch"), "true") {
							same = sameWatch
						}
						want := "listproxy; fwd=bypass; detail=" + becomes[d.switches]
						if becomes[d.switches] == hit {
							want = "listproxy; hit"
						}
						// What is not there yet, or on a busy machine not in time, soon is.
						var from string
						poll.Came(t, patience, func() bool {
							from = same(t, d.door, c)
							return !slices.ContainsFunc([]string{"warming", "review-failed", "not-proven"}, func(soon string) bool {
								return strings.HasSuffix(from, "="+soon)
							})
						})
						if !strings.HasPrefix(from, want) {
							t.Errorf("Cache-Status is %q, want %q", from, want)
						}
					})
				}
			}
		})
	}
}

// ownRevision is the revision of a list or of a bookmark, which moves with everything in the
// cluster.
var ownRevision = regexp.MustCompile(`("kind":"[A-Za-z]+List",.{0,50}"metadata":\{|"BOOKMARK".*)"resourceVersion":"[0-9]+"`)

func withoutOwnRevision(text string) string {
	return ownRevision.ReplaceAllString(text, `$1"resourceVersion":"~"`)
}

// said is an answer: the status and what a client needs to read the body, the body, and where it
// came from.
type said struct{ head, body, from string }

func headOf(status any, header http.Header) string {
	return fmt.Sprint(status, " ", header.Get("Content-Type"), " ", header.Get("Content-Encoding"))
}

// sameList compares a list with the API server's own, and returns where it came from. Where the
// client may get a newer revision than it says, that is not compared.
func sameList(t *testing.T, via *door, c call) string {
	t.Helper()
	asks := asked(t, c)
	return sameAnswer(t, via, c, func(d *door) said {
		r := d.do(t, c)
		text := plain(t, r)
		if asks.Get("resourceVersion") != "" {
			text = withoutOwnRevision(text)
		}
		return said{headOf(r.Status, r.Header), text, r.cacheStatus}
	})
}

// sameAnswer compares what read gets with the API server's own answers before and after, and
// returns where it came from. These can differ: something was written meanwhile, or a table's ages
// are a second older. From memory, the token of a page may have a slash where the API server, which
// has read the page from etcd, writes none.
func sameAnswer(t *testing.T, via *door, c call, read func(d *door) said) string {
	t.Helper()
	for range 50 {
		before, got, after := read(direct), read(via), read(direct)
		if after != before {
			continue
		}
		if strings.HasPrefix(got.from, "listproxy; hit") && body.SameButToken([]byte(before.body), []byte(got.body)) {
			got.body = before.body
		}
		if d := cmp.Diff(before.head+"\n"+before.body, got.head+"\n"+got.body); d != "" {
			t.Errorf("%s (-direct +via):\n%s", c.path, d)
		}
		return got.from
	}
	t.Fatalf("%s: the API server's own answers keep changing", c.path)
	return ""
}

// asked is what a request asks for.
func asked(t *testing.T, c call) url.Values {
	t.Helper()
	_, query, _ := strings.Cut(c.path, "?")
	values, err := url.ParseQuery(query)
	expect.NoError(t, err)
	return values
}

// plain is the body of an answer without its content encoding.
func plain(t *testing.T, r reply) string {
	t.Helper()
	if r.Header.Get("Content-Encoding") != "gzip" {
		return r.Body
	}
	in, err := gzip.NewReader(strings.NewReader(r.Body))
	expect.NoError(t, err)
	body, err := io.ReadAll(in)
	expect.NoError(t, err)
	return string(body)
}

// sameWatch compares the first events of a watch with the API server's own, and returns where it
// came from: those after a revision, or all objects, and the bookmark after them if the client
// takes any.
func sameWatch(t *testing.T, via *door, c call) string {
	t.Helper()
	count, asks := 2, asked(t, c)
	if revision := asks.Get("resourceVersion"); revision == "" || revision == "0" || asks.Has("sendInitialEvents") {
		count = shapeMaps + 3
		if strings.EqualFold(asks.Get("allowWatchBookmarks"), "true") {
			count++
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return sameAnswer(t, via, c, func(d *door) said {
		res := d.send(ctx, t, c)
		defer func() { _ = res.Body.Close() }()
		var from io.Reader = res.Body
		if res.Header.Get("Content-Encoding") == "gzip" { // as 1.37 sends streaming lists
			from = events.Unzip(from)
		}
		in, told := bufio.NewReader(from), &strings.Builder{}
		for i := range count {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%s, %s, event %d: %v", d.name, c.path, i, err)
			}
			_, _ = told.WriteString(withoutOwnRevision(line))
		}
		return said{headOf(res.Status, res.Header), told.String(), res.Header.Get(cacheStatus)}
	})
}
